# SPDX-License-Identifier: Apache-2.0
# Document 003, lines 20-23: the train.py of `python train.py --address="auto"`, whose import lines
# say ray: it runs as `manta run --ray d003_train.py --address=auto`.
import argparse

import ray
from ray.util.sgd import Trainer


def train_func():
    return ray.sgd.world_rank()


parser = argparse.ArgumentParser()
parser.add_argument("--address", default=None)
args = parser.parse_args()
ray.init(address=args.address)
print(Trainer(None, num_workers=2).run(train_func))
