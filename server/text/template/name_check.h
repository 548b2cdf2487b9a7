// Unknown filters and tests are parse errors, except (as in Jinja) where only an `if` leads: there they fail when
// reached.
#pragma once

#include "server/text/template/ast.h"

namespace assay::jinja {

void check_names(const Body& body);  // throws ParseError

}  // namespace assay::jinja
