// Is a history of tests/e2e/histories.py linearizable?  The second judge of the quorum's tests.
//
//	go build -o judge . && ./judge history.jsonl
//
// The object is a counter: an add answers the new value, a read the present one. An operation
// without an answer may have been done or not, at any time after it began: it never ends, and its
// value is anything. Exit status 0: linearizable, 1: not, 2: unknown after the time limit.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

type line struct {
	Client int    `json:"client"`
	Kind   string `json:"kind"`
	Start  int64  `json:"start_ns"`
	End    int64  `json:"end_ns"`
	Value  *int   `json:"value"`
}

// What an operation may do to the counter, and what it must answer (nil: nobody heard it).
var counter = porcupine.NondeterministicModel{
	Init: func() []interface{} { return []interface{}{0} },
	Step: func(state, input, output interface{}) []interface{} {
		now, value := state.(int), output.(*int)
		if input.(string) == "read" {
			if value == nil || *value == now {
				return []interface{}{now}
			}
			return nil
		}
		if value == nil {
			return []interface{}{now, now + 1}
		}
		if *value == now+1 {
			return []interface{}{now + 1}
		}
		return nil
	},
}

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	operations := []porcupine.Operation{}
	clients := 0
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		var one line
		if err := json.Unmarshal(scanner.Bytes(), &one); err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		if one.Value == nil {
			if one.Kind == "read" {
				continue // it says nothing and did nothing
			}
			one.End = math.MaxInt64
			one.Client = 1000 + clients // it never returns: its client goes on as another one
			clients++
		}
		operations = append(operations, porcupine.Operation{
			ClientId: one.Client, Input: one.Kind, Output: one.Value, Call: one.Start, Return: one.End,
		})
	}
	verdict := porcupine.CheckOperationsTimeout(counter.ToModel(), operations, time.Minute)
	fmt.Printf("%d operations: %s\n", len(operations), verdict)
	switch verdict {
	case porcupine.Ok:
		os.Exit(0)
	case porcupine.Illegal:
		os.Exit(1)
	}
	os.Exit(2)
}
