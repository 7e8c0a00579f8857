/* SPDX-License-Identifier: Apache-2.0
 *
 * remote/s3role.h - keys that are lent for a while: to a pod by its web identity, to a container or
 * a virtual machine by the service that it can reach.
 */
#ifndef MANTA_REMOTE_S3ROLE_H
#define MANTA_REMOTE_S3ROLE_H

#include <stdbool.h>

#include "remote/s3.h"

struct manta__s3_lent {
  char user[MANTA__S3_TEXT], secret[MANTA__S3_TEXT], token[8 * MANTA__S3_TEXT];
};

/* In this order: AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN (AssumeRoleWithWebIdentity),
 * AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI, and, unless AWS_EC2_METADATA_DISABLED is
 * "true", the service of EC2 (IMDSv2). They are kept until shortly before they end. False: there
 * are none; that there is no service of a machine is remembered. */
bool manta__s3_borrow(const char *region, struct manta__s3_lent *out);

/* Seconds since 1970 of "2026-11-16T10:00:00Z"; -1: it is no such time. */
int64_t manta__s3_time(const char *text);

#endif
