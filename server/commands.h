// The subcommands of `assay`. argv[0] is the subcommand's name, its arguments follow; the result is the exit status.
#pragma once

namespace assay {

int run_serve(int argc, char** argv);
int run_doctor(int argc, char** argv);

}  // namespace assay
