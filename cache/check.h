// ASSAY_CHECK: a broken invariant ends the process, in every build type. Never for anything a user's input can reach.
//
// Threads: any. Errors: none; it prints where and why to standard error and aborts.
#pragma once

#include <cstdio>
#include <cstdlib>

#define ASSAY_CHECK(condition, why)                                                                    \
  do {                                                                                                 \
    if (!(condition)) {                                                                                \
      std::fprintf(stderr, "%s:%d: broken invariant: %s (%s)\n", __FILE__, __LINE__, why, #condition); \
      std::abort();                                                                                    \
    }                                                                                                  \
  } while (false)
