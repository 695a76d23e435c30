#include "mantissa/data/dataset.h"

namespace mantissa::data {

Dataset::~Dataset() = default;

}  // namespace mantissa::data
