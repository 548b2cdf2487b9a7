// The text that the cache is calibrated on at start where the operator brings none: a few thousand tokens of varied English
// (prose, dialogue, instructions, figures, code), written for this purpose. What calibration can and cannot do:
// docs/certificate.md.
#pragma once

#include <string>

namespace assay {

const std::string& calibration_text();

}  // namespace assay
