// `assay eval needle | perplexity | divergence`: what a pool does to answers, on the operator's own model and text.
//
// Threads: blocks the caller. Errors: printed to stderr; exit status 1 where a measurement failed, 2 on bad usage.
#pragma once

namespace assay {

// argv[0] is the subcommand's name.
int run_eval(int argc, char** argv);

}  // namespace assay
