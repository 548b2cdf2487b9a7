#include "engine/core/mailbox.h"

#include <thread>

#include "engine/core/inbox.h"
#include "gtest/gtest.h"

namespace assay {
namespace {

Event token_event(int32_t token) {
  Event event;
  event.token = token;
  return event;
}

Event last_event() {
  Event event;
  event.finish = FinishReason::kStop;
  return event;
}

TEST(Mailbox, GivesEventsInOrderAndOnce) {
  Mailbox mailbox(1);
  mailbox.push(token_event(1));
  mailbox.push(token_event(2));
  const std::vector<Event> events = mailbox.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].token, 1);
  EXPECT_EQ(events[1].token, 2);
  EXPECT_TRUE(mailbox.take().empty());
}

TEST(Mailbox, CallsReadyWhenItTurnsNotEmptyAndAtOnceIfItIs) {
  Mailbox mailbox(1);
  int calls = 0;
  mailbox.push(token_event(1));
  mailbox.on_ready([&] { ++calls; });
  EXPECT_EQ(calls, 1);
  mailbox.push(token_event(2));
  EXPECT_EQ(calls, 1);
  mailbox.take();
  mailbox.push(token_event(3));
  EXPECT_EQ(calls, 2);
  mailbox.take();
  mailbox.on_ready({});
  mailbox.push(token_event(4));
  EXPECT_EQ(calls, 2);
}

TEST(Mailbox, WaitEndsWithAnEventOrItsTimeout) {
  Mailbox mailbox(1);
  EXPECT_TRUE(mailbox.wait(std::chrono::milliseconds(1)).empty());
  std::thread writer([&] { mailbox.push(token_event(1)); });
  EXPECT_EQ(mailbox.wait(std::chrono::seconds(60)).size(), 1u);
  writer.join();
}

TEST(Mailbox, HasEndedAfterTheLastTerminalEvent) {
  Mailbox mailbox(2);
  mailbox.push(last_event());
  EXPECT_FALSE(mailbox.ended());
  mailbox.push(last_event());
  EXPECT_TRUE(mailbox.ended());
}

TEST(MailboxStream, CancelsWhatHasNotEndedWhenItGoes) {
  auto inbox = std::make_shared<Inbox>(8);
  auto live = std::make_shared<Mailbox>(1);
  { MailboxStream stream(5, live, inbox); }
  const Inbox::Contents contents = inbox->take();
  ASSERT_EQ(contents.commands.size(), 1u);
  EXPECT_EQ(contents.commands[0].stream_id, 5);
  EXPECT_EQ(contents.commands[0].kind, StreamCommand::kCancel);

  auto ended = std::make_shared<Mailbox>(1);
  ended->push(last_event());
  { MailboxStream stream(6, ended, inbox); }
  EXPECT_TRUE(inbox->take().commands.empty());
}

TEST(Inbox, CountsSlotsAndSaysWhenTheQueueIsFull) {
  Inbox inbox(3);
  const auto submission = [](int32_t num_sequences) {
    Request request;
    request.num_sequences = num_sequences;
    return Submission{.stream_id = 0,
                      .request = std::make_shared<const Request>(request),
                      .mailbox = nullptr,
                      .seed = 0,
                      .submitted = {}};
  };
  EXPECT_TRUE(inbox.offer(submission(2)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(inbox.offer(submission(2))));
  EXPECT_TRUE(inbox.offer(submission(1)).ok());
  EXPECT_EQ(inbox.num_queued(), 3);
  EXPECT_EQ(inbox.num_rejected(), 1);
  inbox.free_slots(2);
  EXPECT_TRUE(inbox.offer(submission(2)).ok());
  inbox.refuse(absl::UnavailableError("closed for today"));
  EXPECT_TRUE(absl::IsUnavailable(inbox.offer(submission(1))));
  EXPECT_EQ(inbox.take().submissions.size(), 3u) << "what was taken in before stays";
}

TEST(Inbox, WaitSleepsUntilThereIsWorkOrItCloses) {
  Inbox inbox(1);
  std::thread poster([&] { inbox.post({1, StreamCommand::kCancel, 0}); });
  EXPECT_TRUE(inbox.wait());
  poster.join();
  inbox.take();
  std::thread closer([&] { inbox.close(); });
  EXPECT_FALSE(inbox.wait());
  closer.join();
  inbox.post({1, StreamCommand::kCancel, 0});
  EXPECT_TRUE(inbox.take().commands.empty()) << "a closed inbox is deaf";
}

}  // namespace
}  // namespace assay
