// How one HTTP exchange ended, and who listens to it while it runs. Shared by the transport (which fills it) and the
// recorders (which judge it), so that neither includes the other.
//
// Threads: values; a sink is called by the I/O thread only.
#pragma once

#include <string>
#include <string_view>

namespace assay::sweep {

enum class TransferError {
  kNone,  // the whole response arrived
  kConnectionRefused,
  kConnectFailed,    // name resolution, unreachable, TLS handshake
  kConnectionReset,  // reset or broken pipe, before or in the response
  kClosedEarly,      // orderly end of the connection before the response was complete
  kMalformedHttp,
  kTimeout,
  kStopped,  // the sink wanted no more
};

struct TransferEnd {
  TransferError error = TransferError::kNone;
  std::string detail;   // of the system or the parser; may be empty
  bool resent = false;  // on a fresh connection, because a kept-alive one was closed before it said anything
};

class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  // `content_type` is empty where the header is missing. `now_s`: seconds on the level's clock. False: read no further.
  virtual bool on_header(int status, std::string_view content_type, double now_s) = 0;
  // Body bytes with any transfer coding removed.
  virtual bool on_body(std::string_view bytes, double now_s) = 0;
};

}  // namespace assay::sweep
