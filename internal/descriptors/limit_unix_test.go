// SPDX-License-Identifier: MIT

//go:build unix

package descriptors_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/seed581295f1/timewheel/internal/descriptors"
)

const child = "DESCRIPTORS_TEST_CHILD"

// The limit is the hard one of the process, which the runtime raises the soft one to, or to one less.
func TestLimit_isThatOfTheProcess(t *testing.T) {
	if os.Getenv(child) != "" {
		fmt.Print(descriptors.Limit(), ";")
		return
	}
	cmd := exec.Command("sh", "-c", `ulimit -Sn 100; ulimit -Hn 200; exec "$0" -test.run=TestLimit_`, os.Args[0])
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	if got := string(out[:min(len(out), 4)]); err != nil || got != "200;" && got != "199;" {
		t.Errorf("the limit is %q, %v", out, err)
	}
}
