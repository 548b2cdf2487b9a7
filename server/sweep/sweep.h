// `assay sweep`: measures an OpenAI-compatible server at several levels of load; `assay sweep compare` lays runs over
// each other. The only door of this folder.
//
// Threads: blocks the caller; one thread does everything (Asio adds one for name resolution).
// Errors: printed to stderr. Exit status 0: every level had a completed request; 1: one had none, or a file could not
// be read or written; 2: bad usage.
#pragma once

namespace assay {

// argv[0] is the subcommand's name ("sweep"), the flags follow.
int run_sweep(int argc, char** argv);

}  // namespace assay
