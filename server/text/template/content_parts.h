// Does a template take message content apart itself?
#pragma once

#include "server/text/template/ast.h"

namespace assay::jinja {

// True when the template loops over (or selects from) an attribute or item named `content`, directly or through a
// variable or a macro's parameter.
bool iterates_content(const Body& body);

}  // namespace assay::jinja
