# SPDX-License-Identifier: Apache-2.0
from . import client as client
from . import sgd as sgd
