// Results of `assay eval` as tables and as JSON.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "server/eval/eval_types.h"

namespace assay {

std::string needle_table(const std::vector<NeedleResult>& results);
std::string needle_json(const std::vector<NeedleResult>& results);
std::string text_table(const std::vector<TextResult>& results);
std::string text_json(const std::vector<TextResult>& results);

}  // namespace assay
