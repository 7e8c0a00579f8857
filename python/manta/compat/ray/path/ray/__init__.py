# SPDX-License-Identifier: Apache-2.0
"""Found as `ray` in processes that are given the sys.path of one that has called install()."""

from manta.compat.ray import install

install()
