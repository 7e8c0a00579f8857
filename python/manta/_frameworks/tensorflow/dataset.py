# SPDX-License-Identifier: Apache-2.0
"""Datasets of a train function."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def prepare_dataset_shard(tf_dataset_shard: Any) -> Any:
    """A tf.data.Dataset that holds this rank's part already, for a strategy that would divide it
    once more: its sharding is turned off."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf_dataset_shard.with_options(options)
