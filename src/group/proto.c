/* SPDX-License-Identifier: Apache-2.0
 *
 * group/proto.c - group/proto.def at run time: structs as maps and maps as structs, and whole
 * messages against the table.
 */
#include "group/proto.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "group/worker.h"

// --- the table -----------------------------------------------------------------------------------

enum key_type { I32, I64, U64, REAL, BOOL, STR, STRS, INTS, LIST, DICT, ANY, INSIDE };

static const struct {
  uint8_t is, items; // a manta_type; MANTA_NIL: any
  const char *name;
} types[] = {
    [I32] = {MANTA_INT, 0, "an integer of 32 bits"},
    [I64] = {MANTA_INT, 0, "an integer"},
    [U64] = {MANTA_INT, 0, "an integer"},
    [REAL] = {MANTA_REAL, 0, "a real"},
    [BOOL] = {MANTA_BOOL, 0, "a bool"},
    [STR] = {MANTA_STRING, 0, "a string"},
    [STRS] = {MANTA_LIST, MANTA_STRING, "a list of strings"},
    [INTS] = {MANTA_LIST, MANTA_INT, "a list of integers"},
    [LIST] = {MANTA_LIST, 0, "a list"},
    [DICT] = {MANTA_MAP, 0, "a map"},
    [ANY] = {MANTA_NIL, 0, "anything"},
    [INSIDE] = {MANTA_MAP, 0, "a map"},
};

struct map_key {
  const char *name; // NULL: the end of a list of keys
  enum key_type type;
  bool required;
  size_t at; // in the struct
  enum manta__proto_map part;
};

// A function each, so that a key need not name the struct that it is in.
// clang-format off
#define KEYS(name) \
  static const struct map_key *name##_keys(void) \
  { \
    typedef struct manta__##name self; \
    static const struct map_key keys[] = {
#define MAP(kind, number, ways, call, fds, name) KEYS(name)
#define REPLY(kind, name)                        KEYS(name)
#define PART(name)                               KEYS(name)
#define KEY(type, key)  {#key, type, true, offsetof(self, key), MANTA__MAPS},
#define OPT(type, key)  {#key, type, false, offsetof(self, key), MANTA__MAPS},
#define SUB(part, key)  {#key, INSIDE, true, offsetof(self, key), MANTA__MAP_##part},
#define END             {NULL, ANY, false, 0, MANTA__MAPS}}; \
    static_assert(sizeof keys / sizeof *keys <= MANTA__PROTO_PAIRS / 2, "room for its pairs"); \
    return keys; \
  }
#include "group/proto.def"
// clang-format on

#define MAP(kind, number, ways, call, fds, name) ENTRY(#kind, name, MANTA__M_##kind, 0)
#define REPLY(kind, name)                        ENTRY("reply to " #kind, name, MANTA__M_##kind, 1)
#define PART(name)                               ENTRY(#name, name, 0, 0)
#define ENTRY(label, name, kind, reply)                                                            \
  {label, name##_keys, sizeof(struct manta__##name), kind, reply},
static const struct map_entry {
  const char *label;
  const struct map_key *(*keys)(void);
  size_t size;
  uint16_t kind; // 0: a part of others
  bool reply;
} maps[] = {
#include "group/proto.def"
};

enum {
  DOWN = 1 << MANTA__DRIVER_TO_AGENT | 1 << MANTA__NEAR_TO_FAR,
  UP = 1 << MANTA__AGENT_TO_DRIVER | 1 << MANTA__FAR_TO_NEAR,
  ACROSS = 1 << MANTA__NEAR_TO_FAR,
  BACK = 1 << MANTA__FAR_TO_NEAR,
  TO_WORKER = 1 << MANTA__AGENT_TO_WORKER,
  FROM_WORKER = 1 << MANTA__WORKER_TO_AGENT,
  TO_ZYGOTE = 1 << MANTA__AGENT_TO_ZYGOTE,
  FROM_ZYGOTE = 1 << MANTA__ZYGOTE_TO_AGENT,
  TO_WRITER = 1 << MANTA__AGENT_TO_WRITER,
  FROM_WRITER = 1 << MANTA__WRITER_TO_AGENT,
  TO_READER = 1 << MANTA__AGENT_TO_READER,
  FROM_READER = 1 << MANTA__READER_TO_AGENT,
  TO_UPLOADER = 1 << MANTA__DRIVER_TO_UPLOADER,
  FROM_UPLOADER = 1 << MANTA__UPLOADER_TO_DRIVER,
  FROM_COMMAND = 1 << MANTA__COMMAND_TO_AGENT,
  LOOSE = 1 << MANTA__WAYS
};
enum call_use { NO_CALL, REQUEST, ROUND, STREAM };
enum payload_form { EMPTY, OPAQUE, EXACT, AT_LEAST, KEYED };

#define FDS(least, most)                           (least) << 4 | (most)
#define NONE(kind, number, ways, call, fds)        ROW(kind, ways, call, fds, EMPTY, 0)
#define BYTES(kind, number, ways, call, fds)       ROW(kind, ways, call, fds, OPAQUE, 0)
#define FIXED(kind, number, ways, call, fds, type) ROW(kind, ways, call, fds, EXACT, sizeof(type))
#define HEADED(kind, number, ways, call, fds, type)                                                \
  ROW(kind, ways, call, fds, AT_LEAST, sizeof(type))
#define MAP(kind, number, ways, call, fds, name)                                                   \
  ROW(kind, ways, call, fds, KEYED, MANTA__MAP_##name)
#define ROW(kind, ways, call, fds, form, of) [MANTA__M_##kind] = {#kind, ways, call, fds, form, of},
static const struct message_row {
  const char *name; // NULL: there is no such kind
  uint32_t ways;
  enum call_use call;
  int fds;
  enum payload_form form;
  size_t of; // bytes of a type; which map
} rows[MANTA__M_KINDS] = {
#include "group/proto.def"
};

const char *manta__proto_name(uint16_t kind)
{
  return kind < MANTA__M_KINDS && rows[kind].name ? rows[kind].name : "?";
}

// --- a struct as a map ---------------------------------------------------------------------------

static manta_value from_field(const struct map_key *k, const void *field)
{
  switch (k->type) {
  case I32:
    return manta_value_int(*(const int *)field);
  case I64:
  case U64:
    return manta_value_int(*(const int64_t *)field);
  case REAL:
    return manta_value_real(*(const double *)field);
  case BOOL:
    return manta_value_bool(*(const bool *)field);
  case STR:
    return manta_value_borrow_string(*(const char *const *)field);
  default: {
    const manta_value *v = *(const manta_value *const *)field;
    return v ? (manta_value){.type = v->type, .count = v->count, .u = v->u} : (manta_value){0};
  }
  }
}

// An optional one is then not sent. Of a real, -0.0 counts as 0.
static bool is_zero(const manta_value *v)
{
  switch (v->type) {
  case MANTA_NIL:
    return true;
  case MANTA_BOOL:
    return !v->u.b;
  case MANTA_INT:
    return v->u.i == 0;
  case MANTA_REAL:
    return v->u.r == 0;
  default:
    return false;
  }
}

manta_value manta__proto_map(manta_pair *pairs, enum manta__proto_map map, const void *body)
{
  const struct map_key *keys = maps[map].keys();
  manta_value v = {.type = MANTA_MAP, .u.pairs = pairs};
  manta_pair *rest = pairs + MANTA__PROTO_PAIRS / 2;
  for (const struct map_key *k = keys; k->name; k++) {
    const void *field = (const uint8_t *)body + k->at;
    manta_value one =
        k->type == INSIDE ? manta__proto_map(rest, k->part, field) : from_field(k, field);
    if (k->required || !is_zero(&one))
      pairs[v.count++] = (manta_pair){k->name, one};
  }
  return v;
}

// --- a map as a struct ---------------------------------------------------------------------------

static bool fits(enum key_type type, const manta_value *v)
{
  uint8_t items = types[type].items;
  if (types[type].is != MANTA_NIL && v->type != types[type].is)
    return false;
  if (type == I32)
    return v->u.i >= INT32_MIN && v->u.i <= INT32_MAX;
  for (size_t i = 0; items && i < v->count; i++)
    if (v->u.items[i].type != items)
      return false;
  return true;
}

static void to_field(const struct map_key *k, const manta_value *v, void *field)
{
  switch (k->type) {
  case I32:
    *(int *)field = (int)v->u.i;
    break;
  case I64:
  case U64:
    *(int64_t *)field = v->u.i;
    break;
  case REAL:
    *(double *)field = v->u.r;
    break;
  case BOOL:
    *(bool *)field = v->u.b;
    break;
  case STR:
    *(const char **)field = v->u.s;
    break;
  default:
    *(const manta_value **)field = v;
  }
}

struct map_reading {
  const char *label; // of the message
  bool loose;        // keys that are not known are passed over
  manta_error *err;
};

static manta_status read_map(const struct map_reading *r, enum manta__proto_map map,
                             const manta_value *v, uint8_t *out);

// out NULL: it is only looked at, here and below.
static manta_status read_key(const struct map_reading *r, const struct map_key *k,
                             const manta_value *v, uint8_t *out)
{
  if (!fits(k->type, v))
    return manta_error_set(r->err, MANTA_EPROTO, "%s: key \"%s\" is not %s", r->label, k->name,
                           types[k->type].name);
  if (k->type == INSIDE)
    return read_map(r, k->part, v, out ? out + k->at : NULL);
  if (out)
    to_field(k, v, out + k->at);
  return MANTA_OK;
}

static const struct map_key *find_key(const struct map_key *keys, const char *name)
{
  for (const struct map_key *k = keys; k->name; k++)
    if (!strcmp(k->name, name))
      return k;
  return NULL;
}

static manta_status read_map(const struct map_reading *r, enum manta__proto_map map,
                             const manta_value *v, uint8_t *out)
{
  const struct map_key *keys = maps[map].keys();
  uint32_t seen = 0;
  if (out)
    memset(out, 0, maps[map].size);
  for (size_t i = 0; v->type == MANTA_MAP && i < v->count; i++) {
    const manta_pair *p = &v->u.pairs[i];
    const struct map_key *k = find_key(keys, p->key);
    if (!k && r->loose)
      continue;
    if (!k || (seen & 1u << (k - keys)))
      return manta_error_set(r->err, MANTA_EPROTO, "%s: key \"%.40s\" %s", r->label, p->key,
                             k ? "comes twice" : "is not in the table");
    seen |= 1u << (k - keys);
    MANTA_TRY(read_key(r, k, &p->value, out));
  }
  for (const struct map_key *k = keys; k->name; k++)
    if (k->required && !(seen & 1u << (k - keys)))
      return manta_error_set(r->err, MANTA_EPROTO, "%s: key \"%s\" is missing", r->label, k->name);
  return MANTA_OK;
}

manta_status manta__proto_read(enum manta__proto_map map, const manta_value *v, void *out,
                               manta_error *err)
{
  uint16_t kind = maps[map].kind;
  struct map_reading r = {maps[map].label, kind == 0 || (rows[kind].ways & LOOSE), err};
  return read_map(&r, map, v, out);
}

static manta_status read_payload(enum manta__proto_map map, const struct manta__msg *m,
                                 manta_value *hold, void *out, manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  manta_status st = manta__msg_value(m, hold, &why);
  if (st < 0)
    return manta_error_set(err, st, "%s: %s", maps[map].label, why.message);
  return manta__proto_read(map, hold, out, err);
}

manta_status manta__proto_unpack(enum manta__proto_map map, const struct manta__msg *m,
                                 manta_value *hold, void *out, manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  bool reply = m->flags & MANTA__FRAME_REPLY;
  manta_status st =
      m->kind == maps[map].kind && reply == maps[map].reply
          ? read_payload(map, m, hold, out, &why)
          : manta_error_set(&why, MANTA_EPROTO, "%s%s, not %s", reply ? "reply to " : "",
                            manta__proto_name(m->kind), maps[map].label);
  if (st == MANTA_OK)
    return MANTA_OK;
  manta_value_fini(hold);
  if (!err)
    manta__warn("a message is dropped: %s", why.message);
  return manta_error_set(err, st, "%s", why.message);
}

// --- a message against the table -----------------------------------------------------------------

static enum manta__way reverse(enum manta__way way)
{
  return (enum manta__way)(way ^ 1);
}

static bool has_call(enum call_use call, uint64_t number)
{
  switch (call) {
  case NO_CALL:
    return number == 0;
  case STREAM:
    return number == MANTA__STDOUT || number == MANTA__STDERR;
  default:
    return number > 0;
  }
}

// The payload is the descriptor that comes last, if it was too large.
static size_t payload_bytes(const struct manta__msg *m)
{
  uint64_t n = m->len;
  if (m->flags & MANTA__FRAME_BLOB)
    memcpy(&n, m->data, sizeof n);
  return (size_t)n;
}

static manta_status check_payload(const struct message_row *row, const struct manta__msg *m,
                                  manta_error *err)
{
  size_t n = payload_bytes(m);
  manta_value v = {0};
  bool blob = m->flags & MANTA__FRAME_BLOB, ok = true;
  switch (row->form) {
  case EMPTY:
    ok = n == 0;
    break;
  case OPAQUE:
    ok = !blob;
    break;
  case EXACT:
    ok = n == row->of && !blob;
    break;
  case AT_LEAST:
    ok = n >= row->of;
    break;
  default: {
    manta_status st = read_payload((enum manta__proto_map)row->of, m, &v, NULL, err);
    manta_value_fini(&v);
    return st;
  }
  }
  return ok ? MANTA_OK
            : manta_error_set(err, MANTA_EPROTO, "%s with %zu bytes%s", row->name, n,
                              blob ? " in a blob" : "");
}

// What the reply holds: a map, or nothing.
static struct message_row reply_row(const struct message_row *row, uint16_t kind)
{
  struct message_row r = {.name = row->name, .form = EMPTY};
  for (int i = 0; i < MANTA__MAPS; i++)
    if (maps[i].kind == kind && maps[i].reply)
      r = (struct message_row){.name = maps[i].label, .form = KEYED, .of = (size_t)i};
  r.ways = row->ways;
  r.call = REQUEST;
  return r;
}

manta_status manta__proto_check(const struct manta__msg *m, enum manta__way way, manta_error *err)
{
  bool reply = m->flags & MANTA__FRAME_REPLY;
  int fds = m->fds - (m->flags & MANTA__FRAME_BLOB ? 1 : 0);
  struct message_row row = {0};
  if (m->kind < MANTA__M_KINDS)
    row = rows[m->kind];
  if (!row.name || (reply && row.call != REQUEST))
    return manta_error_set(err, MANTA_EPROTO, "%s of kind %u (%s)", reply ? "a reply" : "a message",
                           m->kind, manta__proto_name(m->kind));
  if (reply)
    row = reply_row(&row, m->kind);
  if (!(row.ways & 1u << (reply ? reverse(way) : way)))
    return manta_error_set(err, MANTA_EPROTO, "%s does not go that way", row.name);
  if (!has_call(row.call, m->call))
    return manta_error_set(err, MANTA_EPROTO, "%s with the call number %llu", row.name,
                           (unsigned long long)m->call);
  if (fds < row.fds >> 4 || fds > (row.fds & 15))
    return manta_error_set(err, MANTA_EPROTO, "%s with %d descriptors", row.name, fds);
  return check_payload(&row, m, err);
}

// --- builds that check ---------------------------------------------------------------------------

#if MANTA__CHECKED
static const struct {
  const char *from, *room;
} ends[] = {
    [MANTA__DRIVER_TO_AGENT] = {"driver", "train"},
    [MANTA__AGENT_TO_DRIVER] = {"agent", "agent"},
    [MANTA__AGENT_TO_WORKER] = {"agent", "agent"},
    [MANTA__WORKER_TO_AGENT] = {"worker", "group"},
    [MANTA__AGENT_TO_ZYGOTE] = {"agent", "agent"},
    [MANTA__ZYGOTE_TO_AGENT] = {"zygote", "group"},
    [MANTA__AGENT_TO_WRITER] = {"agent", "agent"},
    [MANTA__WRITER_TO_AGENT] = {"writer", "agent"},
    [MANTA__AGENT_TO_READER] = {"agent", "agent"},
    [MANTA__READER_TO_AGENT] = {"reader", "agent"},
    [MANTA__DRIVER_TO_UPLOADER] = {"driver", "train"},
    [MANTA__UPLOADER_TO_DRIVER] = {"uploader", "agent"},
    [MANTA__NEAR_TO_FAR] = {"near half", "agent"},
    [MANTA__FAR_TO_NEAR] = {"far half", "agent"},
    [MANTA__COMMAND_TO_AGENT] = {"command", "cmd"},
    [MANTA__AGENT_TO_COMMAND] = {"agent", "agent"},
};

static bool from_outside(enum manta__way way)
{
  return way >= MANTA__NEAR_TO_FAR;
}

// Straight to the descriptor: whoever has set a log may send what is logged as a message.
_Noreturn static void fault(enum manta__way way, bool out, const manta_error *why)
{
  dprintf(STDERR_FILENO,
          "manta: protocol: %s (src/%s) to %s, %s: %s\nhint: src/group/proto.def is the table\n",
          ends[way].from, ends[way].room, ends[reverse(way)].from, out ? "sent" : "received",
          why->message);
  abort();
}

static const struct manta__conn_check checks[MANTA__WAYS];

static manta_status look(const struct manta__conn_check *k, const struct manta__msg *m, bool out,
                         manta_error *err)
{
  enum manta__way to = (enum manta__way)(k - checks), way = out ? to : reverse(to);
  manta_error why = MANTA_ERROR_INIT;
  manta_status st = manta__proto_check(m, way, &why);
  if (st != MANTA_EPROTO && st != MANTA_ETOOBIG)
    return MANTA_OK; // it could not be looked at
  if (out || !from_outside(way))
    fault(way, out, &why);
  return manta_error_set(err, st, "%s", why.message);
}

static const struct manta__conn_check checks[MANTA__WAYS] = {[0 ... MANTA__WAYS - 1] = {look}};

const struct manta__conn_check *manta__proto_end(enum manta__way out)
{
  return &checks[out];
}
#else
const struct manta__conn_check *manta__proto_end(enum manta__way out)
{
  return NULL;
}
#endif
