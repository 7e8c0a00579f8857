/* SPDX-License-Identifier: Apache-2.0
 *
 * data/source/web.c - http:// and https://: a URL is a file.
 */
#include "data/source/remote.h"

static manta_status open_web(struct manta__source **out, const char *name, manta_error *err)
{
  return manta__remote_open(out, &manta__place_http, name,
                            &(struct manta__remote_spec){.url = name}, err);
}

static manta_status list_web(struct manta__listing *to, const char *name, manta_error *err)
{
  int64_t size;
  MANTA_TRY(manta__remote_size(name, &(struct manta__remote_spec){.url = name}, &size, err));
  return manta__listing_add(to, name, size, err);
}

const struct manta__place manta__place_http = {
    .scheme = "http",
    .open = open_web,
    .read = manta__remote_read,
    .expect = manta__remote_expect,
    .close = manta__remote_close,
    .list = list_web,
};

const struct manta__place manta__place_https = {
    .scheme = "https",
    .open = open_web,
    .read = manta__remote_read,
    .expect = manta__remote_expect,
    .close = manta__remote_close,
    .list = list_web,
};
