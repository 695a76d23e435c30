#pragma once

#include <string>

namespace mantissa::bench {

/// The other side of memory/growth/`name`: five of its steps, then, for a line on stdin, one
/// on stdout: bytes by which the resident memory has grown, peak of the live bytes. In a process
/// that has no tensors yet.
void answer_growth(const std::string& name);

}  // namespace mantissa::bench
