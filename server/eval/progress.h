// How far a long measurement is, on standard error: in place on a terminal, else a line now and then.
//
// Threads: one caller.
#pragma once

#include "server/eval/eval_types.h"

namespace assay {

// A new one; it remembers when it last wrote.
Progress make_progress();

}  // namespace assay
