#include "bench/peer_process.h"

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa::bench {
namespace {

TEST(PeerProcess, AnswersLineByLine) {
  PeerProcess peer({"cat"});
  EXPECT_EQ(peer.ask("one"), "one");
  EXPECT_EQ(peer.ask("two words"), "two words");
}

TEST(PeerProcess, SaysThatItEnded) {
  PeerProcess peer({"true"});
  EXPECT_EQ(message_of<Error>([&] { peer.ask("step"); }),
            "true ended instead of answering \"step\"; its messages are above");
}

TEST(PeerProcess, SaysThatItCannotStart) {
  EXPECT_EQ(message_of<IoError>([] { PeerProcess({"/no/such/program"}); }),
            "/no/such/program: cannot be started; name a program that can");
}

}  // namespace
}  // namespace mantissa::bench
