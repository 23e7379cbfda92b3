#include "io/measure_reader.h"

#include "io/reader_suite.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

class MeasureReaderTest : public ReaderSuite {};
INSTANTIATE_TEST_SUITE_P(All, MeasureReaderTest, all_reader_cases(), case_name);

TEST_P(MeasureReaderTest, CountsWhatItRead) {
  add_file(1 << 20);
  add_file(100);  // too small for a record: left out
  add_file(1 << 20);
  const ReaderOptions options{
      .kind = GetParam().kind, .queue_depth = 4, .threads = 4, .direct = GetParam().direct};
  const ReadSpeed speed = measure_reader(
      paths_, options,
      {.record_bytes = 65536, .records_in_flight = 4, .max_seconds = 30, .max_bytes = 8 << 20});
  EXPECT_GE(speed.bytes, 8u << 20);
  EXPECT_LE(speed.bytes, (8u << 20) + 4 * 65536);
  EXPECT_EQ(speed.bytes, speed.records * 65536);
  EXPECT_GT(speed.seconds, 0);
  EXPECT_GT(speed.bytes_per_second(), 0);
  EXPECT_DOUBLE_EQ(speed.records_per_second() * 65536, speed.bytes_per_second());
}

TEST_P(MeasureReaderTest, KeepsToItsTime) {
  add_file(1 << 20);
  const ReaderOptions options{.kind = GetParam().kind, .direct = GetParam().direct};
  const ReadSpeed speed =
      measure_reader(paths_, options, {.record_bytes = 4096, .max_seconds = 0.05});
  EXPECT_GE(speed.seconds, 0.05);
  EXPECT_LT(speed.seconds, 10);
}

TEST(MeasureReader, RefusesWhatCannotBeMeasured) {
  const TempDir dir;
  const std::string path = dir.write("small", "x");
  expect_error(Errc::BadInput, {"4194304"}, [&] { measure_reader({path}, {}, {}); });
  expect_error(Errc::BadInput, {"0 records"},
               [&] { measure_reader({path}, {}, {.record_bytes = 1, .records_in_flight = 0}); });
}

TEST(KeepDriveBusy, TheFewestThatComeClose) {
  const auto fewest = [](std::vector<DepthSpeed> speeds) { return fewest_that_keep_busy(speeds); };
  EXPECT_EQ(fewest({{1, 2.3}, {2, 2.2}, {4, 2.4}, {8, 2.5}}), 1);  // one at a time
  EXPECT_EQ(fewest({{1, 1.9}, {2, 3.4}, {4, 6.1}, {8, 6.8}}), 4);  // several at a time
  EXPECT_EQ(fewest({{1, 1.0}, {2, 2.0}, {4, 4.0}, {8, 8.0}}), 8);
  EXPECT_EQ(fewest({}), 1);
}

TEST(KeepDriveBusy, IsMeasured) {
  const TempDir dir;
  const std::string path = dir.write("file", random_bytes(1 << 20, 1));
  const BusyDrive drive = keep_drive_busy(
      {path}, {}, {.record_bytes = 65536, .max_seconds = 0.2, .max_bytes = 1 << 20});
  EXPECT_GE(drive.reads_at_once, 1);
  EXPECT_LE(drive.reads_at_once, 8);
  EXPECT_GT(drive.bytes_per_second, 0);
}

TEST(CalibrateReader, ChoosesAmongWhatTheMachineHas) {
  const TempDir dir;
  const std::string path = dir.write("file", random_bytes(1 << 20, 1));
  const Calibration best = calibrate_reader({path}, {.kind = ReaderKind::Pool},
                                            {.record_bytes = 65536, .max_seconds = 0.2});
  EXPECT_EQ(best.options.kind, ReaderKind::Pool);
  EXPECT_GE(best.options.threads, 4);
  EXPECT_LE(best.options.threads, 32);
  EXPECT_GT(best.speed.bytes_per_second(), 0);
}

}  // namespace
}  // namespace moeflux::test
