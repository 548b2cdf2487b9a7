// Incremental parser of one HTTP/1.1 response: bytes in, status, content type and decoded body out.
//
// Owns: the unfinished header or chunk header. Threads: one at a time.
// Errors: a response that breaks the protocol sets failed() with a reason; nothing throws.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace assay::sweep {

class HttpResponseParser {
 public:
  // Called in order. False stops the parser: stopped() is then true.
  struct Handlers {
    std::function<bool(int status, std::string_view content_type)> on_header;
    std::function<bool(std::string_view body)> on_body;
  };

  explicit HttpResponseParser(Handlers handlers);
  ~HttpResponseParser();

  void feed(std::string_view bytes);
  void feed_end_of_stream();  // the peer closed: the end of a body without a length

  bool got_anything() const;  // at least one byte was fed
  bool done() const;          // the whole response was read
  bool stopped() const;
  bool failed() const;
  const std::string& reason() const;  // of failed()
  bool keep_alive() const;            // after done(): the connection may be used again

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace assay::sweep
