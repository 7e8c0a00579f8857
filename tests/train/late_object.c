/* SPDX-License-Identifier: Apache-2.0
 *
 * An object that a program loads after manta_init.
 */
#include <manta/session.h>

MANTA_API manta_status late_train(manta_session *s, manta_value *result, manta_error *err);

manta_status late_train(manta_session *s, manta_value *result, manta_error *err)
{
  return MANTA_OK;
}
