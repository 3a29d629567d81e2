// SPDX-License-Identifier: MIT

package serve

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Duration is a duration in JSON: text such as "1h30m", or a number of seconds.
type Duration time.Duration

// UnmarshalJSON reads text or a number.
func (d *Duration) UnmarshalJSON(b []byte) error {
	text := string(b)
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
	} else if text == "null" {
		return nil
	} else if n, err := strconv.ParseFloat(text, 64); err == nil && strings.ContainsAny(text, "eE") &&
		math.Abs(n)*float64(time.Second) < math.MaxInt64 { // Python and JavaScript write small numbers in this way
		*d = Duration(math.Round(n * float64(time.Second)))
		return nil
	} else if !strings.ContainsAny(text, "eE{[tf") {
		text += "s"
	}
	is, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("duration %s is neither text such as \"1h30m\" nor a number of seconds", b)
	}
	*d = Duration(is)
	return nil
}
