// `assay verify`: runs the engine's checks of the meter on this machine and prints what came out.
//
// Threads: one. Errors: exit status 1 on any violation, 2 on a wrong command line.
#pragma once

#include <string>

#include "engine/api/verify.h"

namespace assay {

// argv[0] is the subcommand's name.
int run_verify_command(int argc, char** argv);

std::string verify_text(const VerifyReport& report);
std::string verify_json(const VerifyOptions& options, const VerifyReport& report);

}  // namespace assay
