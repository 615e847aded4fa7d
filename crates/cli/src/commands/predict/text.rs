//! Text that goes on from a prompt, a token at a time: each is drawn from what the model thinks comes next.

use std::collections::HashMap;

use anyhow::Result;
use memfit::TensorView;
use memfit::ir::philox::{philox, unit};
use memfit_run::run_dir::Trained;
use serde_json::json;

use crate::args::{PredictArgs, TextArgs};
use crate::failure::usage;
use crate::output::{self, outln};

/// Where nobody says it.
const TOKENS: usize = 256;

pub fn predict(mut trained: Trained, args: &PredictArgs, json: bool) -> Result<()> {
    if let Some(file) = args.files.first() {
        let (name, file) = (&trained.run.name, file.display());
        return Err(usage(format!("{name} goes on from a text, and reads no {file}; give the text with --prompt")));
    }
    let draw = Draw::new(&args.text)?;
    let alphabet = Alphabet::of(&trained);
    let prompt = alphabet.tokens(args.text.prompt.as_deref())?;
    let mut window = Window::new(&trained, &prompt)?;
    let mut made = String::new();
    if !json {
        output::part(&alphabet.text(&prompt));
    }
    for number in 0..args.text.tokens.unwrap_or(TOKENS) {
        let token = draw.token(window.next(&mut trained)?, number);
        window.push(token);
        let text = alphabet.text(&[token]);
        if json { made.push_str(&text) } else { output::part(&text) }
    }
    if json {
        let prompt = alphabet.text(&prompt);
        outln!("{}", json!({ "event": "text", "prompt": prompt, "text": made, "seed": args.text.seed.unwrap_or(0) }));
    } else {
        outln!("");
    }
    Ok(())
}

/// What tokens stand for: characters, or nothing but their numbers.
struct Alphabet {
    characters: Vec<char>,
    tokens: HashMap<char, i32>,
    vocabulary: usize,
}

impl Alphabet {
    fn of(trained: &Trained) -> Alphabet {
        let characters: Vec<char> = trained.classes.iter().filter_map(|name| name.chars().next()).collect();
        let tokens = characters.iter().copied().zip(0..).collect();
        Alphabet { characters, tokens, vocabulary: trained.run.model.classes() }
    }

    /// Of a text, or of numbers where nobody knows what tokens stand for. Without a prompt it begins as a line does.
    fn tokens(&self, prompt: Option<&str>) -> Result<Vec<i32>> {
        let tokens = match prompt {
            None => vec![self.tokens.get(&'\n').copied().unwrap_or(0)],
            Some(text) if self.characters.is_empty() => {
                text.split_whitespace().map(|word| self.number(word)).collect::<Result<_>>()?
            }
            Some(text) => text.chars().map(|c| self.token(c)).collect::<Result<_>>()?,
        };
        match tokens.is_empty() {
            true => Err(usage("--prompt is empty; leave it out, or give the model something to go on from")),
            false => Ok(tokens),
        }
    }

    fn token(&self, c: char) -> Result<i32> {
        self.tokens.get(&c).copied().ok_or_else(|| {
            let known: String = self.characters.iter().filter(|c| !c.is_control()).take(120).collect();
            usage(format!("--prompt has {c:?}, which the training text has not; it has {known}"))
        })
    }

    fn number(&self, word: &str) -> Result<i32> {
        let number = word.parse().ok().filter(|n: &i32| usize::try_from(*n).is_ok_and(|n| n < self.vocabulary));
        let most = self.vocabulary - 1;
        number.ok_or_else(|| {
            usage(format!("--prompt: \"{word}\" is no token; this model's are numbers from 0 to {most}"))
        })
    }

    fn text(&self, tokens: &[i32]) -> String {
        if self.characters.is_empty() {
            return tokens.iter().map(|token| format!("{token} ")).collect();
        }
        tokens.iter().filter_map(|token| self.characters.get(*token as usize)).collect()
    }
}

/// The last tokens, as many as the model sees.
struct Window {
    tokens: Vec<i32>,
    /// How many of them are there yet; what lies behind is not seen by what comes before.
    len: usize,
}

impl Window {
    fn new(trained: &Trained, prompt: &[i32]) -> Result<Window> {
        let sequence: usize = trained.run.model.input()?.iter().product();
        let seen = &prompt[prompt.len().saturating_sub(sequence)..];
        let mut tokens = vec![0; sequence];
        tokens[..seen.len()].copy_from_slice(seen);
        Ok(Window { tokens, len: seen.len() })
    }

    fn push(&mut self, token: i32) {
        if self.len == self.tokens.len() {
            self.tokens.rotate_left(1);
            self.len -= 1;
        }
        self.tokens[self.len] = token;
        self.len += 1;
    }

    /// What the model says of the token behind the last one.
    fn next(&self, trained: &mut Trained) -> Result<Vec<f32>> {
        let shape = [1, self.tokens.len()];
        let said = trained.session.predict(&[("x", TensorView::i32(&shape, &self.tokens))], "logits")?;
        let vocabulary = said.shape.last().copied().unwrap_or(1).max(1);
        Ok(said.numbers.chunks(vocabulary).nth(self.len - 1).unwrap_or_default().to_vec())
    }
}

/// How a token is drawn.
struct Draw {
    temperature: f64,
    top_k: usize,
    top_p: f64,
    key: [u32; 2],
}

impl Draw {
    fn new(args: &TextArgs) -> Result<Draw> {
        let (temperature, top_p, seed) =
            (args.temperature.unwrap_or(1.0), args.top_p.unwrap_or(1.0), args.seed.unwrap_or(0));
        if !(0.0..=100.0).contains(&temperature) {
            return Err(usage(format!(
                "--temperature {temperature}: give 0, for the likeliest token each time, up to 100"
            )));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(usage(format!("--top-p {top_p}: give a share above 0, up to 1")));
        }
        if args.top_k == Some(0) {
            return Err(usage("--top-k 0: of no token none can be drawn; give 1 or more, or leave it out"));
        }
        let key = [seed as u32, (seed >> 32) as u32];
        Ok(Draw { temperature, top_k: args.top_k.unwrap_or(usize::MAX), top_p, key })
    }

    /// The token with this number since the prompt.
    fn token(&self, logits: Vec<f32>, number: usize) -> i32 {
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        if self.temperature == 0.0 {
            return order.first().map_or(0, |first| *first as i32);
        }
        order.truncate(self.top_k);
        let most = order.first().map_or(0.0, |first| f64::from(logits[*first]));
        let weight = |at: &usize| ((f64::from(logits[*at]) - most) / self.temperature).exp();
        let mut weights: Vec<f64> = order.iter().map(weight).collect();
        // The fewest of the likeliest that together have this share.
        let (wanted, mut sum) = (self.top_p * weights.iter().sum::<f64>(), 0.0);
        let enough = weights.iter().position(|weight| {
            sum += weight;
            sum >= wanted
        });
        weights.truncate(enough.map_or(weights.len(), |last| last + 1));
        let mut left = self.random(number) * weights.iter().sum::<f64>();
        let drawn = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        let drawn = drawn.unwrap_or(weights.len().saturating_sub(1));
        order.get(drawn).map_or(0, |token| *token as i32)
    }

    fn random(&self, number: usize) -> f64 {
        f64::from(unit(philox([number as u32, 0, 0, STREAM], self.key)[0]))
    }
}

/// Tells these random numbers from others of the same seed.
const STREAM: u32 = 0x7465_7874;

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(args: TextArgs, logits: &[f32]) -> Vec<usize> {
        let draw = Draw::new(&args).expect("it can be drawn so");
        let mut counts = vec![0; logits.len()];
        (0..4000).for_each(|number| counts[draw.token(logits.to_vec(), number) as usize] += 1);
        counts
    }

    #[test]
    fn tokens_are_drawn_as_often_as_they_are_likely() {
        let logits = [0.0, 3f32.ln(), 0.0, f32::NEG_INFINITY];
        let counts = drawn(TextArgs::default(), &logits);
        assert!((counts[1] as f64 / 4000.0 - 0.6).abs() < 0.03 && counts[3] == 0, "{counts:?}");
        let cold = drawn(TextArgs { temperature: Some(0.5), ..TextArgs::default() }, &logits);
        assert!((cold[1] as f64 / 4000.0 - 9.0 / 11.0).abs() < 0.03, "{cold:?}");
        assert_eq!(drawn(TextArgs { temperature: Some(0.0), ..TextArgs::default() }, &logits)[1], 4000);
        assert_eq!(drawn(TextArgs { top_k: Some(1), ..TextArgs::default() }, &logits)[1], 4000);
        assert_eq!(drawn(TextArgs { top_p: Some(0.5), ..TextArgs::default() }, &logits)[1], 4000);
        assert_eq!(drawn(TextArgs { top_p: Some(0.7), ..TextArgs::default() }, &logits)[2], 0);
        assert_eq!(drawn(TextArgs { seed: Some(7), ..TextArgs::default() }, &logits).iter().sum::<usize>(), 4000);
    }
}
