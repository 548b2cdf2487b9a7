// The page at /: the state of the server, live, in one self-contained HTML text.
#pragma once

#include <string>

namespace assay {

std::string live_page();

}  // namespace assay
