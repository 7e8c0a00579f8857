/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/gpu.h"

#include "test.h"

static struct manta__gpus g;

#define FOUR "GPU-a0=A GPU-a1=A GPU-b2=A GPU-c3=A"

// The ids of the GPUs that are left, as one string.
static const char *list(const char *fake, const char *visible)
{
  static char text[2048];
  setenv("FAKE_NVML", fake, 1);
  manta__gpu_list_in(&g, FAKE_NVML, visible, false);
  text[0] = 0;
  for (int i = 0; i < g.count; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "", g.gpu[i].id);
  return text;
}

static void all_of_them_with_what_is_known(void **state)
{
  assert_string_equal(list(FOUR, NULL), "0 1 2 3");
  assert_string_equal(g.why, "");
  assert_string_equal(g.gpu[2].uuid, "GPU-b2");
  assert_string_equal(g.gpu[2].name, "A");
  assert_int_equal(g.gpu[2].index, 2);
  assert_int_equal(g.gpu[2].memory, 3LL << 30);
}

static void a_host_without_nvml_has_none(void **state)
{
  manta__gpu_list_in(&g, "/nowhere/libnvidia-ml.so.1", NULL, false);
  assert_int_equal(g.count, 0);
  assert_string_equal(g.why, "no /nowhere/libnvidia-ml.so.1");
}

static void nvml_that_does_not_start_is_none(void **state)
{
  assert_string_equal(list("down", NULL), "");
  assert_string_equal(g.why, "NVML does not start, its error is 9");
}

static void another_library_is_not_nvml(void **state)
{
  manta__gpu_list_in(&g, "libm.so.6", NULL, false);
  assert_int_equal(g.count, 0);
  assert_has(g.why, "lacks functions");
}

static void visible_by_index_keeps_its_order(void **state)
{
  assert_string_equal(list(FOUR, "2,0"), "2 0");
  assert_int_equal(g.gpu[0].index, 2);
  assert_string_equal(g.gpu[0].uuid, "GPU-b2");
  assert_string_equal(g.why, "CUDA_VISIBLE_DEVICES=2,0 leaves 2 of 4");
  assert_string_equal(list(FOUR, " 1 , 3 "), "1 3");
  assert_string_equal(list(FOUR, "0,1,2,3"), "0 1 2 3");
  assert_string_equal(g.why, "");
}

static void visible_by_uuid_or_its_beginning(void **state)
{
  assert_string_equal(list(FOUR, "GPU-b2,GPU-a0"), "GPU-b2 GPU-a0");
  assert_int_equal(g.gpu[0].index, 2);
  assert_string_equal(list(FOUR, "GPU-c"), "GPU-c");
  assert_int_equal(g.gpu[0].index, 3);
  assert_string_equal(list(FOUR, "GPU-a"), ""); // two begin like that
}

static void empty_is_none(void **state)
{
  assert_string_equal(list(FOUR, ""), "");
  assert_has(g.why, "leaves 0 of 4");
  assert_string_equal(list(FOUR, "NoDevFiles"), "");
  assert_string_equal(list(FOUR, "-1"), "");
}

static void the_first_wrong_one_ends_the_list(void **state)
{
  assert_string_equal(list(FOUR, "1,9,2"), "1");
  assert_string_equal(list(FOUR, "1,-1,2"), "1");
  assert_string_equal(list(FOUR, "1,,2"), "1");
  assert_string_equal(list(FOUR, "1,GPU-zz,2"), "1");
  assert_string_equal(list(FOUR, "1x,2"), "");
}

static void one_named_twice_empties_it(void **state)
{
  assert_string_equal(list(FOUR, "0,1,0"), "");
  assert_string_equal(g.why, "CUDA_VISIBLE_DEVICES names GPU 0 twice");
  assert_string_equal(list(FOUR, "1,GPU-a1"), "");
}

// Unequal GPUs: CUDA counts the fastest first, so only the UUID is sure to mean the same one.
static void unequal_ones_go_by_uuid(void **state)
{
  assert_string_equal(list("GPU-a0=slow GPU-a1=fast", NULL), "GPU-a0 GPU-a1");
  manta__gpu_list_in(&g, FAKE_NVML, NULL, true);
  assert_string_equal(g.gpu[1].id, "1");
}

static void a_silent_one_is_left_out(void **state)
{
  assert_string_equal(list("GPU-a0=A GPU-a1=broken GPU-b2=A", NULL), "0 2");
  assert_string_equal(g.why, "1 of 3 GPUs do not answer");
  assert_string_equal(list("GPU-a0=A GPU-a1=broken GPU-b2=A", "1,2"), "");
  assert_string_equal(list("GPU-a0=A GPU-a1=broken GPU-b2=A", "2"), "2");
  assert_int_equal(g.gpu[0].index, 2);
}

static void more_than_the_table_holds_are_cut(void **state)
{
  char fake[100 * 16] = "";
  for (int i = 0; i < 70; i++)
    snprintf(fake + strlen(fake), sizeof fake - strlen(fake), "GPU-%d=A ", i);
  list(fake, NULL);
  assert_int_equal(g.count, MANTA__GPU_MAX);
}

static void the_environment_is_read(void **state)
{
  setenv("FAKE_NVML", "GPU-a0=A GPU-a1=B GPU-b2=A", 1);
  setenv("MANTA_NVML", FAKE_NVML, 1);
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  manta__gpu_list(&g);
  assert_int_equal(g.count, 3);
  assert_string_equal(g.gpu[1].id, "1");
  setenv("CUDA_VISIBLE_DEVICES", "2", 1);
  manta__gpu_list(&g);
  assert_int_equal(g.count, 1);
  assert_int_equal(g.gpu[0].index, 2);
}

static const struct manta__gpu_use *use_of(const struct manta__gpu_use *list, int count, int pid)
{
  for (int i = 0; i < count; i++)
    if (list[i].pid == pid)
      return &list[i];
  fail_msg("process %d is not there", pid);
  return NULL;
}

static void what_processes_use(void **state)
{
  struct manta__gpu_use use[8];
  setenv("FAKE_NVML", "GPU-a0=A GPU-a1=broken GPU-b2=A", 1);
  setenv("MANTA_NVML", FAKE_NVML, 1);
  manta__gpu_watch *w = manta__gpu_watch_open();
  assert_non_null(w);
  int n = manta__gpu_watch_read(w, use, 8);
  assert_int_equal(n, 3);
  assert_int_equal(use_of(use, n, 4242)->memory, 1000 + 3000); // on both that answer
  assert_near(use_of(use, n, 4242)->busy, 0.3, 1e-12);         // the busier one
  assert_int_equal(use_of(use, n, 3)->memory, 0);              // not known
  assert_int_equal(manta__gpu_watch_read(w, use, 1), 1);
  manta__gpu_watch_close(w);
  setenv("MANTA_NVML", "libm.so.6", 1);
  assert_null(manta__gpu_watch_open());
  manta__gpu_watch_close(NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_of_them_with_what_is_known),
      cmocka_unit_test(a_host_without_nvml_has_none),
      cmocka_unit_test(nvml_that_does_not_start_is_none),
      cmocka_unit_test(another_library_is_not_nvml),
      cmocka_unit_test(visible_by_index_keeps_its_order),
      cmocka_unit_test(visible_by_uuid_or_its_beginning),
      cmocka_unit_test(empty_is_none),
      cmocka_unit_test(the_first_wrong_one_ends_the_list),
      cmocka_unit_test(one_named_twice_empties_it),
      cmocka_unit_test(unequal_ones_go_by_uuid),
      cmocka_unit_test(a_silent_one_is_left_out),
      cmocka_unit_test(more_than_the_table_holds_are_cut),
      cmocka_unit_test(the_environment_is_read),
      cmocka_unit_test(what_processes_use),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
