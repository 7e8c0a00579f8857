# SPDX-License-Identifier: Apache-2.0
"""What a train function on PyTorch calls. Importing a module of this package imports torch."""
