# SPDX-License-Identifier: Apache-2.0
"""Python imports it when it starts: workers have the placeholders of harness.py as well."""

import harness

harness.install()
