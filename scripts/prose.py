#!/usr/bin/env python3
"""Counts habits that make our English hard to read, per folder, and fails if a folder has too many.

usage: prose.py [--show] [FOLDER...]

The limits are what tokio, wgpu, rayon and crossbeam have, per 1000 words of comment. A count is only a thermometer: if it
fails, read the comment aloud and write what you would say to a colleague. With --show, prints each place.
"""
import os
import re
import subprocess
import sys

# Name, pattern, most per 1000 words, what to write instead.
HABITS = [
    ("where for if", r"\bwhere\b", 1.5, '"if" for a condition; "where" is for places'),
    ("of X's", r"\bof (?:\w+ )?(?!its\b|it's\b|that's\b|let's\b)\w+[’']s\b", 0.3, "the stream's mark, or your stream"),
    ("of which", r"\b(?:by|of|for|from|in|to|with|behind|through|at|on) (?:which|whom|whose)\b", 1.0, "two sentences"),
    ("somebody", r"\b(?:nobody|somebody|whoever|others?[’']|anybody)\b", 0.7, '"it is not shared", "another thread"'),
    ("behind, beside", r"\b(?:behind|beside|besides)\b", 0.7, '"after", "before", "and also"'),
]
FEWEST_WORDS = 1000


def comments(path):
    """Yields the line number and the text of each comment, or of each line of a page. Skips code blocks and tables."""
    page, code = path.endswith(".md"), False
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        found = re.match(r"(\s*)//[/!]?\s?(.*)" if not page else r"(\s*)(.*)", line)
        text = found.group(2).strip() if found else ""
        if text.startswith("```"):
            code = not code
        elif not found:
            code = False
        elif text and not code and not text.startswith(("SPDX", "#", "|")):
            yield number, re.sub(r"`[^`]*`|\[([^\]]*)\]\([^)]*\)", r" x \1", text)


def folders(roots):
    """Returns the text of each folder, with everything below it."""
    paths = subprocess.run(["git", "ls-files", "--", *roots], check=True, capture_output=True, text=True).stdout.split("\n")
    found = {}
    for path in paths:
        if path.endswith((".rs", ".md", ".cu", ".cuh")) and os.path.exists(path):
            lines = [(f"{path}:{number}", text) for number, text in comments(path)]
            folder = os.path.dirname(path)
            while folder:
                found.setdefault(folder, []).extend(lines)
                folder = os.path.dirname(folder)
    return found


def main():
    arguments = sys.argv[1:]
    show = "--show" in arguments
    failed = False
    for folder, lines in sorted(folders([a for a in arguments if a != "--show"]).items()):
        words = sum(len(re.findall(r"[A-Za-z']+", text)) for _, text in lines)
        if words < FEWEST_WORDS:
            continue
        for name, pattern, most, instead in HABITS:
            places = [(place, text) for place, text in lines for _ in re.findall(pattern, text)]
            per_thousand = 1000 * len(places) / words
            if per_thousand > most:
                failed = True
                print(f'{folder}: "{name}" {per_thousand:.2f} times in 1000 words, at most {most}; write {instead}')
                for place, text in places if show else places[:3]:
                    print(f"    {place}: {text}")
    sys.exit(failed)


main()
