# SPDX-License-Identifier: Apache-2.0
"""What other packages call in a train function, a module for each of them."""
