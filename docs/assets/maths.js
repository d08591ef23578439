// Typesets the spans that pymdownx.arithmatex writes: \(...\) in the line, \[...\] on lines of its own.
document.addEventListener("DOMContentLoaded", () => {
  for (const span of document.querySelectorAll(".arithmatex")) {
    const source = span.textContent.trim();
    try {
      const options = { displayMode: source.startsWith("\\["), strict: false };
      span.innerHTML = katex.renderToString(source.slice(2, -2), options);
    } catch (error) {
      console.error(`${error.message}: ${source}`); // the source stays readable
    }
  }
});
