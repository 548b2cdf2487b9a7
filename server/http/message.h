// HTTP in plain values: what a handler gets and what it gives back. No transport library is visible here.
//
// Threads: values; a Producer has one consumer at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace assay::http {

using Header = std::pair<std::string, std::string>;
using Headers = std::vector<Header>;

// ASCII without case, as header names compare.
bool equals_ignoring_case(std::string_view a, std::string_view b);

struct HttpRequest {
  std::string method;  // GET, POST, ...
  std::string path;    // decoded, without the query
  std::string query;
  Headers headers;
  std::string body;
  std::string request_id;  // never empty, safe to print
  bool http_1_0 = false;
  bool keep_alive = true;

  // First header of that name, empty when absent.
  std::string_view header(std::string_view name) const;
};

// What a Producer has to say now.
struct Production {
  std::string bytes;  // streaming: more of the body. Not streaming: the whole body, once `end` is set
  bool end = false;
  int status = 200;   // not streaming: the reply's status; streaming: for the log
  Headers headers;    // not streaming only
  // What there is to say takes time to make; then only this is set (and `end`, when not streaming). It runs on a worker thread
  // while the producer lives and is not asked for more.
  std::function<Production()> make;
};

// A reply that is still being made. Destroying it cancels the work behind it.
class Producer {
 public:
  virtual ~Producer() = default;
  // `ready` may be called from any thread, whenever take() may have something; it must only hand over.
  virtual void on_ready(std::function<void()> ready) = 0;
  virtual Production take() = 0;  // never blocks
  virtual std::string log_fields() const { return ""; }  // key=value pairs for the request's log line
};

struct Reply {
  int status = 200;
  Headers headers;  // Content-Type and what else is not the transport's business
  std::string body;
  std::unique_ptr<Producer> producer;  // then the body comes from it
  bool event_stream = false;           // the producer streams server-sent events: headers go out at once
  std::string log_message;             // why a request failed, for its log line
};

Reply json_reply(int status, std::string body);

}  // namespace assay::http
