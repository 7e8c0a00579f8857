# SPDX-License-Identifier: Apache-2.0
"""Reads CSV files from S3, each worker its part of every batch.

    python s3.py s3://BUCKET/FOLDER COLUMN

Credentials come from the environment or ~/.aws, as for other programs; AWS_ENDPOINT_URL names a
server that is not Amazon's.
"""

import sys

from manta import sgd
from manta.data import col, read_csv
from manta.sgd import Trainer


def train(config):
    rows, total = 0, 0.0
    for batch in sgd.get_data_shard().iter_batches(batch_size=1024):
        rows += len(batch[config["column"]])
        total += float(batch[config["column"]].sum())
    return rows, total


def main(path, column):
    dataset = read_csv(path).filter(~col(column).is_null()).select_columns([column])
    with Trainer(None, num_workers=2) as trainer:
        results = trainer.run(train, {"column": column}, dataset=dataset)
    rows, total = sum(r[0] for r in results), sum(r[1] for r in results)
    print(f"{rows} rows, mean of {column} {total / max(rows, 1):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
