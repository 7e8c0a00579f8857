/* SPDX-License-Identifier: Apache-2.0 */
#include "base/typo.h"

#include <string.h>

static int least(int a, int b, int c)
{
  int m = a < b ? a : b;
  return m < c ? m : c;
}

// d[i][j]: from the first i letters of a to the first j of b.
int manta__typo_distance(const char *a, const char *b)
{
  int d[MANTA__TYPO_MAX + 1][MANTA__TYPO_MAX + 1];
  size_t n = strlen(a), m = strlen(b);
  if (n > MANTA__TYPO_MAX || m > MANTA__TYPO_MAX)
    return MANTA__TYPO_MAX;
  for (size_t i = 0; i <= n; i++)
    for (size_t j = 0; j <= m; j++) {
      if (i == 0 || j == 0) {
        d[i][j] = (int)(i + j);
        continue;
      }
      d[i][j] = least(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
          d[i - 2][j - 2] + 1 < d[i][j])
        d[i][j] = d[i - 2][j - 2] + 1;
    }
  return d[n][m];
}
