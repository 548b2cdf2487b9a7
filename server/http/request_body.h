// The body of a request while it comes in: memory grows with what has arrived, never with what was announced, and all bodies of
// a server together are bounded.
//
// Threads: BodyBudget any; BodyLease and GrowingBody the connection's strand.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <boost/system/error_code.hpp>

#include <atomic>
#include <cstdint>
#include <string>

namespace assay::http {

// Bytes of bodies that are in memory.
class BodyBudget {
 public:
  explicit BodyBudget(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  bool take(uint64_t bytes) {
    if (taken_.fetch_add(bytes) + bytes <= max_bytes_) return true;
    taken_ -= bytes;
    return false;
  }
  void give_back(uint64_t bytes) { taken_ -= bytes; }

 private:
  const uint64_t max_bytes_;
  std::atomic<uint64_t> taken_{0};
};

// One body's part of the budget.
class BodyLease {
 public:
  explicit BodyLease(BodyBudget& budget) : budget_(budget) {}
  BodyLease(const BodyLease&) = delete;
  ~BodyLease() { release(); }

  // False: the budget has too little left; the lease stays as it was.
  bool grow_to(uint64_t bytes) {
    if (bytes <= held_) return true;
    if (!budget_.take(bytes - held_)) return false;
    held_ = bytes;
    return true;
  }
  void release() {
    budget_.give_back(held_);
    held_ = 0;
  }

 private:
  BodyBudget& budget_;
  uint64_t held_ = 0;
};

// Body type of the parser: a string that reserves nothing for the announced length.
struct GrowingBody {
  using value_type = std::string;

  class reader {
   public:
    template <bool is_request, typename Fields>
    reader(boost::beast::http::header<is_request, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<uint64_t>&, boost::system::error_code& error) { error = {}; }
    template <typename Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      error = {};
      const size_t before = body_.size();
      for (auto it = boost::asio::buffer_sequence_begin(buffers); it != boost::asio::buffer_sequence_end(buffers); ++it) {
        const boost::asio::const_buffer part = *it;
        body_.append(static_cast<const char*>(part.data()), part.size());
      }
      return body_.size() - before;
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace assay::http
