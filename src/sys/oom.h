/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/oom.h - whether the kernel has killed for want of memory in our control group.
 */
#ifndef MANTA_SYS_OOM_H
#define MANTA_SYS_OOM_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the cgroup's count of OOM kills rose since the last call (*seen; 0 at first). */
bool manta__oom_happened(uint64_t *seen);

#endif
