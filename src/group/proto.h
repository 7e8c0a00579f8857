/* SPDX-License-Identifier: Apache-2.0
 *
 * group/proto.h - the messages between driver, agent, zygote, worker and writer, as C has them.
 *
 * group/proto.def lists them. Here the list becomes kinds (MANTA__M_GONE), structs for the messages
 * that are maps (struct manta__gone_msg), and for each of those the two calls
 *
 *   manta_value v = MANTA__PACK(gone_msg, .wid = wid, .cause = cause, …);  to be sent
 *   manta__gone_msg_unpack(m, &v, &gone, err)                             of a received message
 *
 * (1) What is unpacked has all keys of the table with their types, and no others: a message that
 *     has not is refused in every build.
 * (2) Builds that check (MANTA__CHECKED) hold every message that is sent or received against the
 *     table: kind, way, call, descriptors, payload. Our own mistake ends the process; what comes
 *     from outside (a bridge's stream, the named socket) breaks its connection.
 */
#ifndef MANTA_GROUP_PROTO_H
#define MANTA_GROUP_PROTO_H

#include <stdint.h>

#include "engine/engine.h"
#include "wire/conn.h"

/* Where a role finds its connection and its lifeline after exec. */
enum { MANTA__ROLE_CONN_FD = 3, MANTA__ROLE_LIFELINE_FD = 4 };
/* A worker's mark, by which its descendants are known. The kernel shows the environment a process
 * was started with: a zygote is given room in it, for its forked workers to write into. */
#define MANTA__MARK_ENV  "MANTA_WORKER"
#define MANTA__MARK_ROOM "................................................"

/* Raised when a message changes: library and command, and the two ends of a bridge, must agree. */
#define MANTA__PROTO_VERSION 4
#define MANTA__PROTO_DIFFERS                                                                       \
  "the command manta speaks version %d of the protocol, the driver's library version %d\n"         \
  "hint: does MANTA_BIN name the command of the same build?"

/* The streams of a worker. */
enum { MANTA__STDOUT = 1, MANTA__STDERR = 2 };

/* A job is one memory file, which all workers map: this, the packed description, and from the next
 * whole page on the payload. */
struct manta__job_head {
  uint64_t spec, payload; /* bytes */
};
#define MANTA__JOB_PAGE 4096u

/* A result that packs to more rides behind DONE as a descriptor: the bytes that `kind` names
 * ("msgpack": the packed value). */
#define MANTA__RESULT_INLINE (48u << 10)
#define MANTA__RESULT_KIND   16 /* with its NUL */
#define MANTA__RESULT_VALUE  "msgpack"
#define MANTA__RESULT_FILE   "manta-result"

/* --- payloads that are C types ------------------------------------------------------------------
 */

/* A place in the ring of a worker. */
struct manta__rows_msg {
  int64_t wid;
  uint64_t pos;
  uint32_t last, zero; /* ROWS: more of the same record follows, if 0 */
};

/* What one rank may give to all. */
#define MANTA__GIVE_MAX (64u << 10)

/* Behind it lie `count` sizes (uint64_t) and then the bytes of all ranks, in their order. */
struct manta__given {
  uint32_t count;
  int32_t missing; /* -1, or a rank that left its function without giving: nothing follows */
};

/* A slot that passes to a successor. */
struct manta__slot_msg {
  int32_t slot, zero;
};

/* A snapshot's hand-over, fixed so that it costs the saving rank no allocation. */
struct manta__snap_msg {
  int32_t slot; /* index in the worker's slots; -1: the save failed, only `saves` counts */
  int32_t zero;
  int64_t wid;
  int64_t iteration;
  int64_t capacity;  /* bytes of the slot: three of them are made */
  uint64_t ring_pos; /* rank 0's rows up to here belong to it; it counts when they are kept */
  uint64_t saves;    /* calls of save in this attempt, this one included */
};

struct manta__fetched {
  int32_t left; /* not 0: rank 0 has left its function without saving so often */
  int32_t zero;
};

/* Whether there is a reader; the message is that of a failure. */
struct manta__reading_msg {
  int32_t status, zero;
  char message[200];
};

/* The bytes follow. */
struct manta__random_msg {
  int64_t iteration;
};
struct manta__recalled_msg {
  int32_t owner; /* whose bytes follow, or -1 */
  int32_t zero;
};

struct manta__fork_msg {
  int64_t wid;
};
struct manta__forked_msg {
  int64_t wid;
  int32_t pid;     /* 0: failed */
  int32_t error;   /* errno */
  int32_t threads; /* > 1: started by exec, because there are so many */
  int32_t zero;
};
struct manta__exited_msg {
  int32_t pid;
  int32_t status; /* as waitpid gives it */
};
struct manta__serving_msg {
  int32_t pid;
  int32_t cold; /* 1: a successor of it could load more */
};

/* --- what the table becomes ---------------------------------------------------------------------
 */

#define NONE(kind, number, ...)   MANTA__M_##kind = number,
#define BYTES(kind, number, ...)  MANTA__M_##kind = number,
#define FIXED(kind, number, ...)  MANTA__M_##kind = number,
#define HEADED(kind, number, ...) MANTA__M_##kind = number,
#define MAP(kind, number, ...)    MANTA__M_##kind = number,
enum manta__msg_kind {
#include "group/proto.def"
  MANTA__M_KINDS /* the highest, and one */
};

#define MAP(kind, number, ways, call, fds, name) MANTA__MAP_##name,
#define REPLY(kind, name)                        MANTA__MAP_##name,
#define PART(name)                               MANTA__MAP_##name,
enum manta__proto_map {
#include "group/proto.def"
  MANTA__MAPS
};

/* What a received one points to belongs to the value that it was unpacked into. */
#define MANTA__C_I32  int
#define MANTA__C_I64  int64_t
#define MANTA__C_U64  uint64_t /* travels as the int64_t with its bits */
#define MANTA__C_REAL double
#define MANTA__C_BOOL bool
#define MANTA__C_STR  const char *
#define MANTA__C_STRS const manta_value *
#define MANTA__C_INTS const manta_value *
#define MANTA__C_LIST const manta_value *
#define MANTA__C_DICT const manta_value *
#define MANTA__C_ANY  const manta_value *

// clang-format off
#define MAP(kind, number, ways, call, fds, name) struct manta__##name {
#define REPLY(kind, name)                        struct manta__##name {
#define PART(name)                               struct manta__##name {
#define KEY(type, key)                             MANTA__C_##type key;
#define OPT(type, key)                             MANTA__C_##type key;
#define SUB(part, key)                             struct manta__##part key;
#define END                                      };
#include "group/proto.def"
// clang-format on

#define MANTA__PROTO_PAIRS 32 /* keys of a map, with those of a map inside */

/* The struct as a map that borrows from it. */
manta_value manta__proto_map(manta_pair *pairs, enum manta__proto_map map, const void *body);
/* The map as a struct, which borrows from it. */
manta_status manta__proto_read(enum manta__proto_map map, const manta_value *v, void *out,
                               manta_error *err);
/* The payload of m: goes into *hold, which must be {0} and is to be finished after success; the
 * struct borrows from it. A misfit is told to err, or logged where that is NULL. */
manta_status manta__proto_unpack(enum manta__proto_map map, const struct manta__msg *m,
                                 manta_value *hold, void *out, manta_error *err);

/* A map to be sent, which lives as long as the enclosing block. Lists must be whole by then. */
#define MANTA__PACK(name, ...)                                                                     \
  manta__##name##_map((manta_pair[MANTA__PROTO_PAIRS]){{0}}, &(struct manta__##name){__VA_ARGS__})

#define MANTA__PROTO_MAP(name)                                                                     \
  static inline manta_value manta__##name##_map(manta_pair pairs[MANTA__PROTO_PAIRS],              \
                                                const struct manta__##name *body)                  \
  {                                                                                                \
    return manta__proto_map(pairs, MANTA__MAP_##name, body);                                       \
  }
#define MANTA__PROTO_MESSAGE(name)                                                                 \
  MANTA__PROTO_MAP(name)                                                                           \
  static inline manta_status manta__##name##_unpack(const struct manta__msg *m, manta_value *hold, \
                                                    struct manta__##name *out, manta_error *err)   \
  {                                                                                                \
    return manta__proto_unpack(MANTA__MAP_##name, m, hold, out, err);                              \
  }
#define MAP(kind, number, ways, call, fds, name) MANTA__PROTO_MESSAGE(name)
#define REPLY(kind, name)                        MANTA__PROTO_MESSAGE(name)
#define PART(name)                               MANTA__PROTO_MAP(name)
#include "group/proto.def"

/* --- the table at run time ----------------------------------------------------------------------
 */

/* An end of a connection, by what it says to the other. A way and its reverse are neighbours. */
enum manta__way {
  MANTA__DRIVER_TO_AGENT, /* the far half of a bridge is its agent's driver … */
  MANTA__AGENT_TO_DRIVER, /* … and the near half is its driver's agent */
  MANTA__AGENT_TO_WORKER,
  MANTA__WORKER_TO_AGENT,
  MANTA__AGENT_TO_ZYGOTE,
  MANTA__ZYGOTE_TO_AGENT,
  MANTA__AGENT_TO_WRITER,
  MANTA__WRITER_TO_AGENT,
  MANTA__AGENT_TO_READER,
  MANTA__READER_TO_AGENT,
  MANTA__DRIVER_TO_UPLOADER,
  MANTA__UPLOADER_TO_DRIVER,
  MANTA__NEAR_TO_FAR,
  MANTA__FAR_TO_NEAR,
  MANTA__COMMAND_TO_AGENT,
  MANTA__AGENT_TO_COMMAND,
  MANTA__WAYS
};

/* For the making of a connection: what checks it. NULL in builds that do not. */
const struct manta__conn_check *manta__proto_end(enum manta__way out);
/* MANTA_EPROTO: this message does not go this way, or not like this. In every build; whoever passes
 * on what comes from outside asks it. */
manta_status manta__proto_check(const struct manta__msg *m, enum manta__way way, manta_error *err);
/* The name of a kind, or "?". */
const char *manta__proto_name(uint16_t kind);

#endif
