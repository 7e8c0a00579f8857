/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/build.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "sys/sock.h"

struct image {
  const uint8_t *data;
  uint64_t len;
};

static bool holds(const struct image *im, uint64_t at, uint64_t n)
{
  return at <= im->len && n <= im->len - at;
}

static int64_t build_in_notes(const struct image *im, uint64_t at, uint64_t end)
{
  ElfW(Nhdr) n;
  while (at + sizeof n <= end) {
    memcpy(&n, im->data + at, sizeof n);
    uint64_t name = at + sizeof n, desc = name + ((n.n_namesz + 3ull) & ~3ull);
    if (!holds(im, name, n.n_namesz) || !holds(im, desc, n.n_descsz))
      return 0;
    if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && !memcmp(im->data + name, "GNU", 4))
      return (int64_t)(manta__hash(im->data + desc, n.n_descsz) >> 1);
    at = desc + ((n.n_descsz + 3ull) & ~3ull);
  }
  return 0;
}

static int64_t build_of_image(const struct image *im)
{
  ElfW(Ehdr) h;
  ElfW(Phdr) p;
  if (!holds(im, 0, sizeof h))
    return 0;
  memcpy(&h, im->data, sizeof h);
  if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_phentsize != sizeof p)
    return 0;
  for (int i = 0; i < h.e_phnum; i++) {
    uint64_t at = h.e_phoff + (uint64_t)i * sizeof p;
    if (!holds(im, at, sizeof p))
      return 0;
    memcpy(&p, im->data + at, sizeof p);
    int64_t build = p.p_type == PT_NOTE && holds(im, p.p_offset, p.p_filesz)
                        ? build_in_notes(im, p.p_offset, p.p_offset + p.p_filesz)
                        : 0;
    if (build)
      return build;
  }
  return 0;
}

int64_t manta__build_of_file(const char *path)
{
  struct stat sb;
  int64_t build = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &sb) < 0 || sb.st_size <= 0) {
    manta__fd_close(&fd);
    return 0;
  }
  struct image im = {.len = (uint64_t)sb.st_size};
  void *p = mmap(NULL, (size_t)sb.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (p != MAP_FAILED) {
    im.data = p;
    build = build_of_image(&im);
    munmap(p, (size_t)sb.st_size);
  }
  return build;
}

// The function may lie in a library, whose build the log then has: so a file that is as old as the
// run is never called changed.
bool manta__build_changed(const char *path, int64_t build, int64_t wall_ns)
{
  struct stat sb;
  if (stat(path, &sb) < 0)
    return true;
  int64_t written = (int64_t)sb.st_mtim.tv_sec * 1000000000 + sb.st_mtim.tv_nsec;
  int64_t now = manta__build_of_file(path);
  return written > wall_ns && (build == 0 || now == 0 || now != build);
}
