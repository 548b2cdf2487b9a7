// Fields of OpenAI requests that would change the answer and that this server does not know how to honour.
//
// Threads: pure function. Errors: recorded in `fields`.
#pragma once

#include "server/service/fields.h"

namespace assay::http {

void refuse_unsupported(Fields& fields);

}  // namespace assay::http
