# SPDX-License-Identifier: Apache-2.0
"""manta by the names of other packages, for programs that are not to be changed."""
