#pragma once

#include <htslib/hts_log.h>

namespace mantissa::genome {

// htslib writes its complaints to stderr, which belongs to the program; ours are exceptions.
class QuietHtslib {
 public:
  QuietHtslib() : level_(hts_get_log_level()) { hts_set_log_level(HTS_LOG_OFF); }
  QuietHtslib(const QuietHtslib&) = delete;
  QuietHtslib& operator=(const QuietHtslib&) = delete;
  ~QuietHtslib() { hts_set_log_level(level_); }

 private:
  htsLogLevel level_;
};

}  // namespace mantissa::genome
