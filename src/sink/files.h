/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/files.h - the kinds that write files with what the core has.
 */
#ifndef MANTA_SINK_FILES_H
#define MANTA_SINK_FILES_H

#include "sink/sink.h"

extern const struct manta__sink_kind manta__sink_json, manta__sink_csv, manta__sink_tensorboard;

#endif
