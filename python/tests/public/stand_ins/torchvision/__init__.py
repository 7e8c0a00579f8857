# SPDX-License-Identifier: Apache-2.0
"""As much of torchvision as the programs use, with pictures that are drawn instead of fetched."""

from torchvision import datasets as datasets
from torchvision import transforms as transforms
