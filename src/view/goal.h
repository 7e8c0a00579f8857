/* SPDX-License-Identifier: Apache-2.0
 *
 * view/goal.h - whether a metric is better small or large, as far as its name tells.
 */
#ifndef MANTA_VIEW_GOAL_H
#define MANTA_VIEW_GOAL_H

enum manta__goal { MANTA__GOAL_NONE = 0, MANTA__GOAL_MIN, MANTA__GOAL_MAX };

/* "val/loss", "rmse": MIN; "Test accuracy", "f1": MAX; "lr", "count": NONE. */
enum manta__goal manta__goal_of(const char *name);

#endif
