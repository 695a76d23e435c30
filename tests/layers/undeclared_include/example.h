#include "mantissa/base/error.h"
#  include <mantissa/tensor/dtype.h>
