/* SPDX-License-Identifier: Apache-2.0 */
#include "base/knob.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/manta.h>

#include "base/log.h"
#include "base/typo.h"

#define PREFIX      "MANTA_"
#define PREFIX_LEN  (sizeof PREFIX - 1)
#define SHOWN       100 /* of a wrong value */
#define MAX_SECONDS 1e9
#define MAX_CPUS    1e6
#define MAX_MB      1e9
#define MAX_GPUS    2048
#define HEX_DIGITS  16

// --- The table -----------------------------------------------------------------------------------

#define WHOLE(from, to) .type = MANTA__AS_WHOLE, .low = (from), .high = (to)
#define NUMBER(to)      .type = MANTA__AS_NUMBER, .low = 0, .high = (to)
#define SECONDS         NUMBER(MAX_SECONDS), .unit = "seconds"
#define WORD(list)      .type = MANTA__AS_WORD, .words = (list)
#define BOOL            .type = MANTA__AS_BOOL
#define HEX             .type = MANTA__AS_HEX

#define USERS     .reader = MANTA__FOR_USERS
#define OPERATORS .reader = MANTA__FOR_OPERATORS
#define DEBUGGING .reader = MANTA__FOR_DEBUGGING
#define MANTAS    .reader = MANTA__FOR_MANTA

static const struct manta__knob table[MANTA__KNOBS] = {
    [MANTA__KNOB_RESULTS] = {"MANTA_RESULTS", USERS, .otherwise = "~/manta_results",
                             .help = "directory that holds the directories of runs"},
    [MANTA__KNOB_STAGING] = {"MANTA_STAGING", USERS, .otherwise = "~/manta_results/storage",
                             .help = "directory for the local copies of runs stored under s3://"},
    [MANTA__KNOB_UPLOAD_WAIT] = {"MANTA_UPLOAD_WAIT", USERS, SECONDS, .dflt = "300",
                                 .help = "seconds that the end of a run waits for its upload"},
    [MANTA__KNOB_DATA_SPOOL] = {"MANTA_DATA_SPOOL", USERS, WHOLE(0, MAX_MB), .unit = "MB",
                                .dflt = "16384",
                                .help =
                                    "megabytes of copies of files whose HTTP server has no ranges"},
    [MANTA__KNOB_NUM_WORKERS] = {"MANTA_NUM_WORKERS", USERS, WHOLE(1, MANTA_MAX_RANKS),
                                 .unit = "workers", .dflt = "1",
                                 .help = "workers of a trainer that does not say how many"},
    [MANTA__KNOB_HOSTS] = {"MANTA_HOSTS", USERS, .otherwise = "this host",
                           .help = "hosts of a trainer that names none: "
                                   "NAME[@ADDRESS] WORKERS [COMMAND], separated by semicolons"},
    [MANTA__KNOB_LOG] = {"MANTA_LOG", USERS, WORD("error warn info debug"), .dflt = "warn",
                         .help = "least severity of manta's own messages that are shown"},
    [MANTA__KNOB_VERBOSE] = {"MANTA_VERBOSE", USERS, WHOLE(0, 2), .dflt = "0",
                             .help = "progress of runs that do not say: 1 shown, 2 in detail"},
    [MANTA__KNOB_PDB] = {"MANTA_PDB", USERS, WHOLE(0, MANTA_MAX_RANKS - 1), .otherwise = "no rank",
                         .help = "rank that has the driver's terminal as its standard streams"},
    [MANTA__KNOB_GRACE] = {"MANTA_GRACE", USERS, SECONDS, .dflt = "30",
                           .help = "seconds that a program has to end after manta run got SIGTERM"},
    [MANTA__KNOB_DETAILED_METRICS] =
        {"MANTA_DETAILED_METRICS", USERS, BOOL, .dflt = "0",
         .help = "add date, host, address, pid and total time to every row"},
    [MANTA__KNOB_STRICT] = {"MANTA_STRICT", USERS, BOOL, .dflt = "0",
                            .help = "refuse session calls outside of a train function, in Python"},
    [MANTA__KNOB_PYTHON] = {"MANTA_PYTHON", USERS, .dflt = "python3",
                            .help = "interpreter of manta run for .py files, and of manta doctor"},

    [MANTA__KNOB_NUM_CPUS] = {"MANTA_NUM_CPUS", OPERATORS, NUMBER(MAX_CPUS), .unit = "CPUs",
                              .otherwise = "those detected",
                              .help = "number of CPUs that this host gives to workers"},
    [MANTA__KNOB_NUM_GPUS] = {"MANTA_NUM_GPUS", OPERATORS, WHOLE(0, MAX_GPUS), .unit = "GPUs",
                              .otherwise = "those detected",
                              .help = "number of GPUs that this host gives to workers"},
    [MANTA__KNOB_RESOURCES] = {"MANTA_RESOURCES", OPERATORS, .otherwise = "none",
                               .help = "named resources of this host, as JSON: {\"disk\": 2}"},
    [MANTA__KNOB_GROW_AFTER] = {"MANTA_GROW_AFTER", OPERATORS, SECONDS, .dflt = "30",
                                .help = "seconds that there must be room before a run grows"},
    [MANTA__KNOB_RESIZE_EVERY] = {"MANTA_RESIZE_EVERY", OPERATORS, SECONDS, .dflt = "600",
                                  .help =
                                      "least seconds between two changes of the number of workers"},
    [MANTA__KNOB_GONE_AFTER] =
        {"MANTA_GONE_AFTER", OPERATORS, SECONDS, .dflt = "10",
         .help = "seconds that a killed worker has to end before it is given up"},
    [MANTA__KNOB_BIN] = {"MANTA_BIN", OPERATORS, .otherwise = "beside the library, else in PATH",
                         .help = "path of the command manta, which drivers start as their agent"},
    [MANTA__KNOB_MODULES] = {"MANTA_MODULES", OPERATORS, .otherwise = "manta/ beside the library",
                             .help = "directory of libmanta-ucx.so and the other modules"},
    [MANTA__KNOB_NCCL] = {"MANTA_NCCL", OPERATORS, .dflt = "libnccl.so.2",
                          .help = "file of NCCL, for collectives on GPU memory"},
    [MANTA__KNOB_AMX] = {"MANTA_AMX", OPERATORS, WORD("none ok trap"),
                         .otherwise = "what CPUID says",
                         .help = "what the CPU has of AMX, where CPUID is judged wrongly"},

    [MANTA__KNOB_COMM_ISA] = {"MANTA_COMM_ISA", DEBUGGING, WORD("scalar avx2 avx512"),
                              .otherwise = "the widest that the CPU has",
                              .help = "widest instruction set that reductions use"},
    [MANTA__KNOB_COMM_WAY] = {"MANTA_COMM_WAY", DEBUGGING, WORD("cached past remote"),
                              .otherwise = "the fastest one, by measuring",
                              .help = "way that all-reduces of private memory go"},
    [MANTA__KNOB_DATA_ISA] = {"MANTA_DATA_ISA", DEBUGGING, WORD("scalar avx2 avx512"),
                              .otherwise = "the widest that the CPU has",
                              .help = "instruction set that CSV is parsed with"},
    [MANTA__KNOB_DATA_READER] = {"MANTA_DATA_READER", DEBUGGING, WORD("always never"),
                                 .otherwise =
                                     "where a host has several workers, or a data set functions",
                                 .help = "whether a process of its own parses for all workers"},
    [MANTA__KNOB_NVML] = {"MANTA_NVML", DEBUGGING, .dflt = "libnvidia-ml.so.1",
                          .help = "file of NVML, by which GPUs are listed"},

    [MANTA__KNOB_RESUME] = {"MANTA_RESUME", MANTAS, HEX, .otherwise = "none",
                            .help = "session that a program goes on with, set by manta resume"},
    [MANTA__KNOB_TUNE_RESUME] = {"MANTA_TUNE_RESUME", MANTAS, .otherwise = "none",
                                 .help =
                                     "experiment that a program goes on with, set by manta tune "
                                     "resume"},
    [MANTA__KNOB_ROLE] = {"MANTA_ROLE", MANTAS, .otherwise = "none",
                          .help = "which of manta's processes a child is to be"},
    [MANTA__KNOB_WORKER] = {"MANTA_WORKER", MANTAS, .otherwise = "none",
                            .help = "mark of a worker, by which its descendants are found"},
};

const struct manta__knob *manta__knob_row(enum manta__knob_id id)
{
  return &table[id];
}

enum manta__knob_id manta__knob_find(const char *name)
{
  int i = 0;
  while (i < MANTA__KNOBS && strcmp(table[i].name, name) != 0)
    i++;
  return (enum manta__knob_id)i;
}

const char *manta__knob_type_name(enum manta__knob_type type)
{
  static const char *const names[] = {"text", "whole number", "number", "bool", "word", "hex"};
  return names[type];
}

const char *manta__knob_reader_name(enum manta__knob_reader reader)
{
  static const char *const names[] = {"users", "operators", "debugging", "manta"};
  return names[reader];
}

// --- Reading a text ------------------------------------------------------------------------------

// The place of `text` among words that blanks separate, or -1.
static int place_among(const char *words, const char *text)
{
  size_t n = strlen(text);
  for (int i = 0; *words; i++) {
    size_t len = strcspn(words, " ");
    if (len == n && strncmp(words, text, n) == 0)
      return i;
    words += len + (words[len] == ' ');
  }
  return -1;
}

static bool read_whole(const struct manta__knob *k, const char *text, manta_value *out)
{
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  *out = manta_value_int(n);
  return errno == 0 && end != text && !*end && (double)n >= k->low && (double)n <= k->high;
}

// As in the C locale, whatever the program's is. NaN is out of every range.
static bool read_number(const struct manta__knob *k, const char *text, manta_value *out)
{
  char *end;
  locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); // glibc's own, never freed
  double x = strtod_l(text, &end, c);
  *out = manta_value_real(x);
  return end != text && !*end && x >= k->low && x <= k->high;
}

static bool read_bool(const char *text, manta_value *out)
{
  char lower[8] = ""; // longer ones are cut, and then none of the words
  for (size_t i = 0; text[i] && i < sizeof lower - 1; i++)
    lower[i] = (char)tolower((unsigned char)text[i]);
  int at = place_among("1 true yes on 0 false no off", lower);
  *out = manta_value_bool(at < 4);
  return at >= 0;
}

static bool is_hex(const char *text)
{
  size_t n = strspn(text, "0123456789abcdefABCDEF");
  return n > 0 && n <= HEX_DIGITS && !text[n];
}

static bool read_text(const struct manta__knob *k, const char *text, manta_value *out)
{
  *out = manta_value_borrow_string(text);
  switch (k->type) {
  case MANTA__AS_WHOLE:
    return read_whole(k, text, out);
  case MANTA__AS_NUMBER:
    return read_number(k, text, out);
  case MANTA__AS_BOOL:
    return read_bool(text, out);
  case MANTA__AS_WORD:
    return place_among(k->words, text) >= 0;
  case MANTA__AS_HEX:
    return is_hex(text);
  default:
    return true;
  }
}

// "error, warn, info or debug"
static void list_words(const char *words, char *buf, size_t size)
{
  size_t at = 0;
  buf[0] = 0;
  while (*words && at < size) {
    size_t len = strcspn(words, " ");
    const char *rest = words + len + (words[len] == ' ');
    const char *join = !*rest ? "" : strchr(rest, ' ') ? ", " : " or ";
    at += (size_t)snprintf(buf + at, size - at, "%.*s%s", (int)len, words, join);
    words = rest;
  }
}

// What a right value is: "a number of seconds from 0 to 10".
static void say_right(const struct manta__knob *k, char *buf, size_t size)
{
  if (k->type == MANTA__AS_WORD)
    list_words(k->words, buf, size);
  else if (k->type == MANTA__AS_BOOL)
    snprintf(buf, size, "1 or 0 (or true, false, yes, no, on, off)");
  else if (k->type == MANTA__AS_HEX)
    snprintf(buf, size, "up to %d hexadecimal digits", HEX_DIGITS);
  else
    snprintf(buf, size, "a %snumber%s%s from %.10g to %.10g",
             k->type == MANTA__AS_WHOLE ? "whole " : "", k->unit ? " of " : "",
             k->unit ? k->unit : "", k->low, k->high);
}

static manta_status refuse(const struct manta__knob *k, const char *text, manta_error *err)
{
  char right[160], shown[SHOWN + 4];
  bool cut = strlen(text) > SHOWN;
  say_right(k, right, sizeof right);
  snprintf(shown, sizeof shown, "%.*s%s", SHOWN, text, cut ? "..." : "");
  for (char *p = shown; *p; p++)
    if (iscntrl((unsigned char)*p)) // it may go to a terminal
      *p = '?';
  return manta_error_set(err, MANTA_EINVAL, "%s must be %s, not \"%s\"", k->name, right, shown);
}

// --- Values --------------------------------------------------------------------------------------

static const char *given(const struct manta__knob *k)
{
  const char *text = getenv(k->name);
  return text && *text ? text : NULL;
}

manta_status manta__knob_value(enum manta__knob_id id, bool dflt, manta_value *out,
                               manta_error *err)
{
  const struct manta__knob *k = &table[id];
  const char *text = dflt ? NULL : given(k);
  manta_value v = {0};
  if (!text)
    text = k->dflt;
  if (text && !read_text(k, text, &v))
    return refuse(k, text, err);
  *out = v;
  return MANTA_OK;
}

static void warn_once(enum manta__knob_id id, const char *message)
{
  static atomic_bool told[MANTA__KNOBS];
  if (!atomic_exchange(&told[id], true))
    manta__warn("%s; going on without it", message);
}

// Nil without a value.
static manta_value in_force(enum manta__knob_id id, enum manta__knob_type type)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert(table[id].type == type);
  if (manta__knob_value(id, false, &v, &err) < 0) {
    warn_once(id, err.message);
    manta__knob_value(id, true, &v, NULL);
  }
  return v;
}

bool manta__knob_whole(enum manta__knob_id id, int64_t *out)
{
  manta_value v = in_force(id, MANTA__AS_WHOLE);
  if (v.type == MANTA_INT)
    *out = v.u.i;
  return v.type == MANTA_INT;
}

bool manta__knob_number(enum manta__knob_id id, double *out)
{
  manta_value v = in_force(id, MANTA__AS_NUMBER);
  if (v.type == MANTA_REAL)
    *out = v.u.r;
  return v.type == MANTA_REAL;
}

bool manta__knob_hex(enum manta__knob_id id, uint64_t *out)
{
  manta_value v = in_force(id, MANTA__AS_HEX);
  if (v.type == MANTA_STRING)
    *out = strtoull(v.u.s, NULL, 16);
  return v.type == MANTA_STRING;
}

bool manta__knob_bool(enum manta__knob_id id)
{
  manta_value v = in_force(id, MANTA__AS_BOOL);
  return manta_value_as_bool(&v, false);
}

int manta__knob_word(enum manta__knob_id id)
{
  manta_value v = in_force(id, MANTA__AS_WORD);
  return v.type == MANTA_STRING ? place_among(table[id].words, v.u.s) : -1;
}

double manta__knob_seconds(enum manta__knob_id id)
{
  double s = 0;
  manta__knob_number(id, &s);
  return s;
}

const char *manta__knob_text(enum manta__knob_id id)
{
  const char *text = given(&table[id]);
  return text ? text : table[id].dflt;
}

bool manta__knob_is_set(enum manta__knob_id id)
{
  return given(&table[id]) != NULL;
}

// --- What is wrong -------------------------------------------------------------------------------

manta_status manta__knob_check(enum manta__knob_id id, manta_error *err)
{
  manta_value v;
  return manta__knob_value(id, false, &v, err);
}

manta_status manta__knobs_check(manta_error *err)
{
  for (int i = 0; i < MANTA__KNOBS; i++)
    MANTA_TRY(manta__knob_check((enum manta__knob_id)i, err));
  return MANTA_OK;
}

// "WORKERS" for "NUM_WORKERS".
static bool is_end(const char *part, const char *whole)
{
  size_t n = strlen(part), m = strlen(whole);
  return n > 2 && m > n && whole[m - n - 1] == '_' && strcmp(whole + m - n, part) == 0;
}

const char *manta__knob_like(const char *name)
{
  const char *like = NULL;
  if (strncmp(name, PREFIX, PREFIX_LEN) != 0 || manta__knob_find(name) != MANTA__KNOBS)
    return NULL;
  const char *tail = name + PREFIX_LEN;
  int best = strlen(tail) > 5 ? 3 : 2; // in a short word two letters are another word
  for (int i = 0; i < MANTA__KNOBS && table[i].reader != MANTA__FOR_MANTA; i++) {
    const char *known = table[i].name + PREFIX_LEN;
    int d = is_end(tail, known) ? 1 : manta__typo_distance(tail, known);
    if (d < best) {
      best = d;
      like = table[i].name;
    }
  }
  return like;
}

void manta__knobs_tell_unknown(void (*tell)(void *ctx, const char *name, const char *like),
                               void *ctx)
{
  char name[64];
  for (char **e = environ; *e; e++) {
    int n = snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
    const char *like = n < (int)sizeof name ? manta__knob_like(name) : NULL;
    if (like)
      tell(ctx, name, like);
  }
}

static void warn_unknown(void *ctx, const char *name, const char *like)
{
  manta__warn("unknown environment variable %s; did you mean %s?", name, like);
}

void manta__knobs_warn_unknown(void)
{
  static atomic_flag told = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&told))
    manta__knobs_tell_unknown(warn_unknown, NULL);
}
