/* SPDX-License-Identifier: Apache-2.0 */
#include "train/program.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/hash.h"
#include "train/driver.h"

#define MAX_WORDS 4096 /* of a command line or an environment that is given to us */

// --- a copy of our own ---------------------------------------------------------------------------

static void free_words(char **list)
{
  for (size_t i = 0; list && list[i]; i++)
    manta__free(list[i]);
  manta__free(list);
}

static size_t count_words(const char *const *list)
{
  size_t n = 0;
  while (list && list[n] && n <= MAX_WORDS)
    n++;
  return n;
}

static manta_status copy_words(char ***out, const char *const *list, manta_error *err)
{
  size_t n = count_words(list);
  if (n > MAX_WORDS)
    return manta_error_set(err, MANTA_ETOOBIG, "a program with more than %d words", MAX_WORDS);
  char **copy = manta__calloc(n + 1, sizeof *copy);
  for (size_t i = 0; copy && i < n; i++)
    if (!(copy[i] = manta__strdup(list[i]))) {
      free_words(copy);
      copy = NULL;
    }
  if (!copy)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a program");
  *out = copy;
  return MANTA_OK;
}

manta_status manta__program_copy(struct manta__program *out, const manta_program *given,
                                 manta_error *err)
{
  manta_program p;
  *out = (struct manta__program){0};
  if (!given)
    return MANTA_OK;
  MANTA_TRY(manta__config_take(&p, sizeof p, given, "MANTA_PROGRAM_INIT", err));
  if (!p.argv || !p.argv[0])
    return manta_error_set(err, MANTA_EINVAL, "a program needs a command line");
  MANTA_TRY(copy_words(&out->argv, p.argv, err));
  manta_status st = copy_words(&out->env, p.env, err);
  if (st < 0)
    manta__program_fini(out);
  return st;
}

void manta__program_fini(struct manta__program *p)
{
  free_words(p->argv);
  free_words(p->env);
  *p = (struct manta__program){0};
}

// --- which one it is -----------------------------------------------------------------------------

static bool is_thread_number(const char *var)
{
  return strncmp(var, "OMP_NUM_THREADS=", 16) == 0;
}

static bool is_load_time(const char *var)
{
  static const char *const prefix[] = {"OMP_",      "LD_",   "ONEDNN_", "DNNL_",  "MKL_",  "GOMP_",
                                       "OPENBLAS_", "KMP_",  "MALLOC_", "GLIBC_", "ASAN_", "TSAN_",
                                       "UBSAN_",    "LSAN_", "NVIDIA_", "PYTHON"};
  for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
    if (!strncmp(var, prefix[i], strlen(prefix[i])))
      return true;
  return false;
}

int manta__program_threads(const struct manta__program *p, int given)
{
  const char *env = getenv("OMP_NUM_THREADS");
  if (p->argv)
    return 1;
  return given > 0 ? given : env && *env ? 0 : 1;
}

uint64_t manta__program_key(const struct manta__program *p, const struct manta__exe *exe,
                            int threads)
{
  uint64_t h = manta__hash_seed(exe, offsetof(struct manta__exe, path), (uint64_t)threads);
  for (char **a = p->argv; a && *a; a++)
    h = manta__hash_seed(*a, strlen(*a) + 1, h);
  for (char **e = p->env; e && *e; e++)
    h = manta__hash_seed(*e, strlen(*e) + 1, h);
  for (char **e = environ; *e; e++)
    if (is_load_time(*e) && !(threads > 0 && is_thread_number(*e)))
      h ^= manta__hash(*e, strlen(*e)); // whatever the order
  return (h >> 1) | 1;
}

// --- in words ------------------------------------------------------------------------------------

static manta_status append_string(manta_value *list, const char *s)
{
  manta_value v = {0};
  MANTA_TRY(manta_value_set_string(&v, s));
  return manta_value_append(list, &v);
}

manta_status manta__strings_to_value(manta_value *out, char *const *list, size_t n)
{
  MANTA_TRY(manta_value_set_list(out));
  for (size_t i = 0; i < n; i++)
    MANTA_TRY(append_string(out, list[i]));
  return MANTA_OK;
}

static bool is_in_environment(const char *pair)
{
  size_t n = strcspn(pair, "=");
  for (char **e = environ; *e; e++)
    if (!strncmp(*e, pair, n) && (*e)[n] == '=')
      return true;
  return false;
}

manta_status manta__program_environment(const struct manta__program *p, bool drop_threads,
                                        manta_value *out)
{
  MANTA_TRY(manta_value_set_list(out));
  for (char **e = p->env; e && *e; e++)
    if (!is_in_environment(*e))
      MANTA_TRY(append_string(out, *e));
  for (char **e = environ; *e; e++)
    if (!drop_threads || !is_thread_number(*e))
      MANTA_TRY(append_string(out, *e));
  return MANTA_OK;
}

// A number of threads beats the environment's.
static manta_status list_words(const struct manta__program *p, int threads, manta_value *argv,
                               manta_value *env)
{
  char *const *words = p->argv ? p->argv : manta__drv.argv;
  size_t n = p->argv ? count_words((const char *const *)p->argv) : (size_t)manta__drv.argc;
  char text[48];
  MANTA_TRY(manta__strings_to_value(argv, words, n));
  MANTA_TRY(manta__program_environment(p, threads > 0, env));
  snprintf(text, sizeof text, "OMP_NUM_THREADS=%d", threads);
  return threads > 0 ? append_string(env, text) : MANTA_OK;
}

manta_status manta__program_describe(const struct manta__program *p, uint64_t key,
                                     const struct manta__exe *exe, int threads,
                                     struct manta__program_msg *out, manta_value *argv,
                                     manta_value *env, manta_error *err)
{
  if (!manta__drv.argv)
    return manta_error_set(err, MANTA_ESTATE,
                           "manta_init was not called: it must be the first statement of main");
  if (list_words(p, threads, argv, env) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to describe the program");
  *out = (struct manta__program_msg){.key = key,
                                     .argv = argv,
                                     .env = env,
                                     .path = exe->path,
                                     .dev = exe->dev,
                                     .ino = exe->ino,
                                     .size = exe->size,
                                     .mtime_ns = exe->mtime_ns};
  return MANTA_OK;
}
