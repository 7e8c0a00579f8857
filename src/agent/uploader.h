/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/uploader.h - the process that keeps the copy of a run directory in a store
 * (ckpt/replica.h).
 *
 * A child of the driver, which it can neither stop nor slow: it looks at the directory by itself,
 * tries again whatever fails, and says so once. When the driver asks, it sends all and ends. When
 * the driver is lost it waits for the run's last write and sends that, for a minute at most: what
 * is missing then is in the directory.
 */
#ifndef MANTA_AGENT_UPLOADER_H
#define MANTA_AGENT_UPLOADER_H

/* conn: to the driver. argv: name, the run directory. */
int manta__uploader_main(int conn, char *const argv[]);

#endif
