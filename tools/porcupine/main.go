// Is a history linearizable?  The second judge, beside those in Python.
//
//	go build -o judge . && ./judge counter history.jsonl
//
// counter, of tests/e2e/histories.py: an add answers the new value, a read the present one.
//
// registers, of tests/sim/linear_histories.py: each key has a value that only grows. A write of one
// that is not greater changes nothing, a read answers the present one. Each key is judged alone.
//
// An operation without an answer may have been done or not, at any time after it began: it never
// ends, and its value is anything. Exit status 0: linearizable, 1: not, 2: unknown after the time
// limit.
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
	Key    string `json:"key"`
	Start  int64  `json:"start_ns"`
	End    int64  `json:"end_ns"`
	Value  *int   `json:"value"`
}

// What an operation may do to the counter, and what it must answer (nil: nobody heard it).
var counter = porcupine.NondeterministicModel{
	Init: func() []interface{} { return []interface{}{0} },
	Step: func(state, input, output interface{}) []interface{} {
		now, value := state.(int), output.(*int)
		if input.(line).Kind == "read" {
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

// A key without a row reads as -1.
var registers = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, operation := range history {
			key := operation.Input.(line).Key
			byKey[key] = append(byKey[key], operation)
		}
		parts := [][]porcupine.Operation{}
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() interface{} { return -1 },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		now, value := state.(int), *output.(*int)
		if input.(line).Kind == "read" {
			return value == now, now
		}
		return true, max(now, value)
	},
}

func main() {
	models := map[string]porcupine.Model{"counter": counter.ToModel(), "registers": registers}
	if len(os.Args) != 3 || models[os.Args[1]].Step == nil {
		fmt.Println("usage: judge counter|registers history.jsonl")
		os.Exit(3)
	}
	file, err := os.Open(os.Args[2])
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
		if one.Value == nil && one.Kind == "read" {
			continue // it says nothing and did nothing
		}
		if one.Value == nil || one.End == 0 {
			one.End = math.MaxInt64
			one.Client = 1_000_000 + clients // it never returns: its client goes on as another one
			clients++
		}
		operations = append(operations, porcupine.Operation{
			ClientId: one.Client, Input: one, Output: one.Value, Call: one.Start, Return: one.End,
		})
	}
	verdict := porcupine.CheckOperationsTimeout(models[os.Args[1]], operations, time.Minute)
	fmt.Printf("%d operations: %s\n", len(operations), verdict)
	switch verdict {
	case porcupine.Ok:
		os.Exit(0)
	case porcupine.Illegal:
		os.Exit(1)
	}
	os.Exit(2)
}
