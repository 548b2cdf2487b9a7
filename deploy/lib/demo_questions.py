"""Asks a running server one chat question and one question about a document, and prints both answers."""
import json
import pathlib
import sys
import urllib.request

DOCUMENTS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "documents"


def ask(url: str, question: str) -> str:
    body = {"model": "tiny", "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 64}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def main() -> int:
    url = sys.argv[1]
    question = "What is the capital of France?"
    print(f"\nYou:   {question}\nAssay: {ask(url, question)}\n")

    needle = json.loads((DOCUMENTS / "questions.json").read_text())[0]
    document = (DOCUMENTS / needle["document"]).read_text().strip()
    answer = ask(url, f"{document}\n\n{needle['question']}")
    print(f"You:   [a story of {len(document.split())} words, tests/data/documents/{needle['document']}]")
    print(f"       {needle['question']}\nAssay: {answer}")
    if answer.strip() != needle["answer"]:
        print(f"The document says {needle['answer']}: this answer is wrong.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
